import type { Terminal } from '../authenticate/password/ask-password.ts';
import { type Config, ConfigError, loadConfig } from '../config/config.ts';
import type { Sources } from '../config/environment.ts';
import { keyRings } from '../relay/upstream/key-rings.ts';
import type { Redis } from '../storage/redis.ts';
import { checkAddress } from './check-address.ts';
import { type CheckOptions, readArguments } from './check-arguments.ts';
import { checkConfiguration } from './check-configuration.ts';
import { type BotAnswer, type BotKey, botsToAsk, checkKeys, keysToTry } from './check-keys.ts';
import { checkProvider } from './check-provider.ts';
import { checkRedis } from './check-redis.ts';
import { checkResumption } from './check-resumption.ts';
import { checkThrough } from './check-through.ts';
import { groupsOfBot } from './conversation.ts';
import { DirectService } from './direct-service.ts';
import { CheckReport, count, reportAsJson, reportAsTable } from './report.ts';
import { type Visitors, visitorsOf } from './visitors.ts';

/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

/** Where a check prints: its result to `output`, its progress to `progress`. */
export interface CheckTerminal extends Terminal {
  readonly progress: Terminal['output'];
}

/**
 * Checks a deployment from the machine where it runs: configuration, Redis, the bot service and its keys, and
 * the path through the load balancer. Returns the exit code: 0 no problem, 1 problems, 64 wrong arguments, 78 a
 * configuration with which the relay does not start.
 */
export async function checkCommand(
  args: readonly string[],
  { environment, inFile }: Sources,
  terminal: CheckTerminal,
): Promise<number> {
  const options = readArguments(args);
  if (typeof options === 'string') return wrongArguments(options, terminal);
  const report = new CheckReport();
  const print = (exitCode: number) => {
    terminal.output.write(options.json ? reportAsJson(report) : reportAsTable(report));
    return exitCode;
  };
  let config: Config;
  try {
    config = loadConfig(environment, inFile);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const advice = 'Mend it in the environment or in .env; docs/configuration.md lists the variables.';
    for (const says of error.problems) report.about('configuration').problem(says, advice);
    return print(EX_CONFIG);
  }
  let visitors: Visitors;
  try {
    const asked = { input: terminal.input, output: terminal.progress };
    visitors = await visitorsOf(config.authMode, options.users, { environment, terminal: asked, report });
  } catch (error) {
    return wrongArguments(`${(error as Error).message}\n`, terminal);
  }
  const isGood = checkConfiguration(config, environment, report);
  await runChecks({ config, options, visitors, report, terminal });
  return print(isGood ? Math.min(report.problems, 1) : EX_CONFIG);
}

function wrongArguments(text: string, { progress }: CheckTerminal): number {
  progress.write(text);
  return EX_USAGE;
}

interface CheckRun {
  readonly config: Config;
  readonly options: CheckOptions;
  readonly visitors: Visitors;
  readonly report: CheckReport;
  readonly terminal: CheckTerminal;
}

async function runChecks(run: CheckRun): Promise<void> {
  const { config, options, visitors, report } = run;
  report.hide(...keyRings({ settings: config.upstream, bots: config.bots }).keys());
  const isOidc = config.authMode === 'oidc';
  if (isOidc) report.hide(config.oidc.clientSecret);
  const signInEndpoint = isOidc ? await checkProvider(config, report) : undefined;
  const redis = await checkRedis(config, report);
  try {
    const bots = botsToAsk(config, options.bots, report);
    const keys = options.messages && !config.demo ? keysToTry(config, bots) : [];
    const taking = bots.filter((bot) => groupsOfBot(config, bot).includes('message'));
    const { through, text } = options;
    const isSentThrough = options.messages && through && visitors.visitor && taking.length > 0;
    announce(keys.length + (isResumptionTried(run, keys) ? 1 : 0) + (isSentThrough ? 1 : 0), run);
    const answers = await checkService(run, keys, redis);
    if (!through) return;
    // A bot that takes messages, and has answered one if possible.
    const bot = taking.find((one) => answers.has(one)) ?? taking[0] ?? bots[0];
    await checkThrough({
      ...{ config, report, through, ...visitors, signInEndpoint, bot },
      text: isSentThrough ? text : undefined,
      direct: bot === undefined ? undefined : answers.get(bot)?.seen,
    });
  } finally {
    redis?.close();
  }
}

function isResumptionTried({ config }: CheckRun, keys: readonly BotKey[]): boolean {
  return config.upstream.resume && keys.length > 0;
}

/** Prints how many messages the check will send, before it sends them. */
function announce(messages: number, { terminal }: CheckRun): void {
  if (messages === 0) return;
  terminal.progress.write(
    `Sending up to ${count(messages, 'message')}, each a run of a bot that the bot service counts (even if the check does not wait for its end); --no-messages sends none.\n`,
  );
}

/** Checks whether the bot service can be reached and accepts each of `keys`. Returns the answers by bot. */
async function checkService(
  run: CheckRun,
  keys: readonly BotKey[],
  redis: Redis | undefined,
): Promise<ReadonlyMap<string, BotAnswer>> {
  const { config, options, report } = run;
  const { baseUrl } = config.upstream;
  if (!baseUrl || !(await checkAddress(baseUrl, report))) return new Map();
  if (!options.messages) {
    report.about('key').note('not tried: --no-messages');
    return new Map();
  }
  const service = new DirectService({ config, redis, report });
  const { maxExecutionMs } = config.upstream;
  const messages = { service, text: options.text, report, maxExecutionMs };
  try {
    const answers = await checkKeys(keys, messages);
    // One bot is enough, since all have the same service, and the message is paid.
    const [first] = answers.values();
    if (first && isResumptionTried(run, keys)) await checkResumption(first, messages);
    return answers;
  } finally {
    await service.removeConversations();
  }
}
