import type { Terminal } from '../authenticate/user-command.ts';
import { type Config, ConfigError, type Environment, loadConfig } from '../config.ts';
import { keyRings } from '../relay/key-rings.ts';
import { maskKeys } from '../relay/upstream-request.ts';
import { type Secret, secret } from '../secret.ts';
import { checkAddress } from './check-address.ts';
import { type CheckOptions, readArguments } from './check-arguments.ts';
import { checkConfiguration, reportConfigProblems } from './check-configuration.ts';
import { botsToAsk, checkKeys, keysToTry } from './check-keys.ts';
import { checkRedis } from './check-redis.ts';
import { checkThrough } from './check-through.ts';
import { collectFindings, quoter, type Report } from './findings.ts';
import { messageSlots } from './message-slots.ts';
import type { Observation } from './observe-stream.ts';
import { count, findingsAsJson, findingsAsTable, problemsIn } from './print-findings.ts';
import { testMessages } from './send-message.ts';
import { type SignInPassword, signInPassword } from './sign-in-password.ts';

/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

/** Where a check prints: its result to `output`, and what it is about to do to `progress`. */
export interface CheckTerminal extends Terminal {
  readonly progress: Terminal['output'];
}

/**
 * The command that proves a deployment from where it runs: configuration, Redis, the bot service and its keys, and
 * the way through the load balancer. Returns the exit code: 0 no problem, 1 problems, 64 wrong arguments, 78 a
 * configuration with which the relay does not start.
 */
export async function checkCommand(
  args: readonly string[],
  environment: Environment,
  terminal: CheckTerminal,
): Promise<number> {
  const options = readArguments(args);
  if (typeof options === 'string') {
    terminal.progress.write(options);
    return EX_USAGE;
  }
  let signIn: SignInPassword | undefined;
  try {
    const { input, progress } = terminal;
    if (options.user) signIn = await signInPassword(options, environment, { input, output: progress });
  } catch (error) {
    terminal.progress.write(`${(error as Error).message}\n`);
    return EX_USAGE;
  }
  const hidden = [...(signIn?.hidden ?? [])];
  let mask = maskKeys(hidden);
  const { findings, report } = collectFindings(() => mask);
  const messages = { sent: 0 };
  const hide = (secrets: readonly Secret[]) => {
    hidden.push(...secrets);
    mask = maskKeys(hidden);
  };
  const config = usableConfig(environment, report);
  const isGood = config !== undefined && checkConfiguration(config, environment, report);
  if (config) {
    const run = {
      config,
      options,
      password: signIn?.password,
      report,
      hide,
      messages,
      terminal,
      mask: (text: string) => mask(text),
    };
    await runChecks(run);
  }
  const result = { findings, messages: messages.sent };
  terminal.output.write(options.json ? findingsAsJson(result) : findingsAsTable(result));
  if (!isGood) return EX_CONFIG;
  return problemsIn(findings) === 0 ? 0 : 1;
}

function usableConfig(environment: Environment, report: Report): Config | undefined {
  try {
    return loadConfig(environment);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    reportConfigProblems(error.problems, report);
    return undefined;
  }
}

interface Run {
  readonly config: Config;
  readonly options: CheckOptions;
  readonly password: Secret | undefined;
  readonly report: Report;
  /** Has these masked in everything that is reported from now on. */
  readonly hide: (secrets: readonly Secret[]) => void;
  readonly mask: (text: string) => string;
  readonly messages: { sent: number };
  readonly terminal: CheckTerminal;
}

async function runChecks(run: Run): Promise<void> {
  const { config, options, password, report, hide, mask } = run;
  hide(keyRings({ settings: config.upstream, bots: config.bots }).keys());
  const quote = quoter(mask);
  const redis = await checkRedis(config.redisUrl, report);
  try {
    const bots = botsToAsk(config, options.bots, report);
    announce(run, bots);
    const answers = await checkService(run, { bots, slots: messageSlots(config, redis) });
    const { through, user, text } = options;
    if (!through) return;
    const bot = bots.find((one) => answers.has(one)) ?? bots[0];
    await checkThrough({
      config,
      through,
      report,
      quote,
      mask,
      account: user !== undefined && password ? { user, password } : undefined,
      hide: (value) => hide([secret(value)]),
      message: options.messages && bot !== undefined ? { bot, text } : undefined,
      onSend: () => run.messages.sent++,
      direct: bot === undefined ? undefined : answers.get(bot),
    });
  } finally {
    redis?.close();
  }
}

/** Says what the check will cost before it does. */
function announce({ config, options, terminal }: Run, bots: readonly string[]): void {
  const keys = config.demo ? [] : keysToTry(config, bots).flatMap((one) => one.keys);
  const through = options.user !== undefined && bots.length > 0 ? 1 : 0;
  const planned = options.messages ? keys.length + through : 0;
  if (planned === 0) return;
  terminal.progress.write(
    `Sending up to ${count(planned, 'message')}, each a run of a bot that the bot service counts (also one that is left early); --no-messages sends none.\n`,
  );
}

/** Whether the bot service can be reached, and what it says to each key of `bots`. */
async function checkService(
  { config, options, report, mask, messages }: Run,
  { bots, slots }: { bots: readonly string[]; slots: ReturnType<typeof messageSlots> },
): Promise<Map<string, Observation>> {
  const { baseUrl } = config.upstream;
  const quote = quoter(mask);
  if (!baseUrl || !(await checkAddress(baseUrl, { report, quote }))) return new Map();
  if (!options.messages) {
    report({ state: 'note', check: 'key', says: 'not tried: --no-messages' });
    return new Map();
  }
  const send = testMessages({ config, slots, mask, onSend: () => messages.sent++ });
  return checkKeys(keysToTry(config, bots), { text: options.text, report, quote, send });
}
