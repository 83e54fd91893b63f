import type { Terminal } from '../authenticate/password/ask-password.ts';
import { type Config, ConfigError, loadConfig } from '../config/config.ts';
import type { Sources } from '../config/environment.ts';
import { keyRings } from '../relay/upstream/key-rings.ts';
import { maskKeys } from '../relay/upstream/upstream-request.ts';
import { type Secret, secret } from '../secret.ts';
import { checkAddress } from './check-address.ts';
import { type CheckOptions, readArguments } from './check-arguments.ts';
import { checkConfiguration, reportConfigProblems } from './check-configuration.ts';
import { botsToAsk, checkKeys, type KeyAnswer, keysToTry } from './check-keys.ts';
import { checkProvider } from './check-provider.ts';
import { checkRedis } from './check-redis.ts';
import { checkResumption } from './check-resumption.ts';
import { checkThrough } from './check-through.ts';
import { collectFindings, quoter, type Report } from './findings.ts';
import { groupsOfBot } from './groups-of-bot.ts';
import { messageSlots } from './message-slots.ts';
import { type MessagePlan, planMessages } from './plan-messages.ts';
import { count, findingsAsJson, findingsAsTable, problemsIn } from './print-findings.ts';
import { testMessages } from './send-message.ts';
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
  sources: Sources,
  terminal: CheckTerminal,
): Promise<number> {
  const options = readArguments(args);
  if (typeof options === 'string') {
    terminal.progress.write(options);
    return EX_USAGE;
  }
  const { environment } = sources;
  const loaded = load(sources);
  const mode = 'problems' in loaded ? 'password' : loaded.config.authMode;
  let visitors: Visitors;
  try {
    const { input, progress } = terminal;
    const asked = { environment, terminal: { input, output: progress } };
    visitors = await visitorsOf(mode, options, asked);
  } catch (error) {
    terminal.progress.write(`${(error as Error).message}\n`);
    return EX_USAGE;
  }
  const hidden = [...visitors.hidden];
  let mask = maskKeys(hidden);
  const { findings, report } = collectFindings(() => mask);
  const messages = { sent: 0 };
  const hide = (secrets: readonly Secret[]) => {
    hidden.push(...secrets);
    mask = maskKeys(hidden);
  };
  let isGood = false;
  if ('problems' in loaded) reportConfigProblems(loaded.problems, report);
  else {
    const { config } = loaded;
    isGood = checkConfiguration(config, environment, report);
    const run = { config, options, visitors, report, hide, messages, terminal };
    await runChecks({ ...run, mask: (text) => mask(text) });
  }
  const result = { findings, messages: messages.sent };
  terminal.output.write(options.json ? findingsAsJson(result) : findingsAsTable(result));
  if (!isGood) return EX_CONFIG;
  return problemsIn(findings) === 0 ? 0 : 1;
}

function load({ environment, inFile }: Sources): { readonly config: Config } | Pick<ConfigError, 'problems'> {
  try {
    return { config: loadConfig(environment, inFile) };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error;
  }
}

interface CheckRun {
  readonly config: Config;
  readonly options: CheckOptions;
  readonly visitors: Visitors;
  readonly report: Report;
  /** Makes everything that is reported from now on mask these. */
  readonly hide: (secrets: readonly Secret[]) => void;
  readonly mask: (text: string) => string;
  readonly messages: { sent: number };
  readonly terminal: CheckTerminal;
}

async function runChecks(run: CheckRun): Promise<void> {
  const { config, options, visitors, report, hide, mask } = run;
  hide(keyRings({ settings: config.upstream, bots: config.bots }).keys());
  const quote = quoter(mask);
  const isOidc = config.authMode === 'oidc';
  if (isOidc) hide([config.oidc.clientSecret]);
  if (options.user !== undefined) noteUnusedUser(config.authMode, report);
  const signInEndpoint = isOidc ? await checkProvider(config, report) : undefined;
  const redis = await checkRedis(config, report);
  try {
    const bots = botsToAsk(config, options.bots, report);
    const plan = planMessages({ config, options, bots, ...visitors });
    announce(plan, run.terminal);
    const answers = await checkService(run, { bots, slots: messageSlots(config, redis) });
    const { through, text } = options;
    if (!through) return;
    const bot = botToCall(config, bots, answers);
    await checkThrough({
      config,
      through,
      report,
      quote,
      mask,
      ...visitors,
      signInEndpoint,
      hide: (value) => hide([secret(value)]),
      bot,
      otherBots: bots.filter((one) => one !== bot),
      text: plan.through > 0 ? text : undefined,
      sendsForeignFile: plan.foreignFile > 0,
      onSend: () => run.messages.sent++,
      direct: bot === undefined ? undefined : answers.get(bot)?.seen,
    });
  } finally {
    redis?.close();
  }
}

/** The bot that is called through the load balancer: one that takes messages, and has answered one if possible. */
function botToCall(config: Config, bots: readonly string[], answers: ReadonlyMap<string, KeyAnswer>) {
  const taking = bots.filter((bot) => groupsOfBot(config, bot).includes('message'));
  return taking.find((bot) => answers.has(bot)) ?? taking[0] ?? bots[0];
}

function noteUnusedUser(mode: Config['authMode'], report: Report): void {
  if (mode === 'password') return;
  const where = mode === 'guest' ? 'visitors need no name' : 'users sign in at the identity provider';
  report({
    state: 'note',
    check: 'sign-in',
    says: `--user is not used: with AUTH_MODE=${mode} ${where}`,
    advice: 'Leave --user out, or look at AUTH_MODE.',
  });
}

/** Prints how many messages the check will send, before it sends them. */
function announce({ total }: MessagePlan, terminal: CheckTerminal): void {
  if (total === 0) return;
  terminal.progress.write(
    `Sending up to ${count(total, 'message')}, each a run of a bot that the bot service counts (even if the check does not wait for its end); --no-messages sends none.\n`,
  );
}

/** Checks whether the bot service can be reached and accepts each key of `bots`. Returns the answers by bot. */
async function checkService(
  { config, options, report, mask, messages }: CheckRun,
  { bots, slots }: { bots: readonly string[]; slots: ReturnType<typeof messageSlots> },
): Promise<Map<string, KeyAnswer>> {
  const { baseUrl } = config.upstream;
  const quote = quoter(mask);
  if (!baseUrl || !(await checkAddress(baseUrl, { report, quote }))) return new Map();
  if (!options.messages) {
    report({ state: 'note', check: 'key', says: 'not tried: --no-messages' });
    return new Map();
  }
  const send = testMessages({ config, slots, mask, onSend: () => messages.sent++ });
  const keys = keysToTry(config, bots);
  const sending = { text: options.text, report, quote, send };
  const answers = await checkKeys(keys, sending);
  // One bot is enough, since all have the same service, and the message is paid.
  const [first] = answers;
  if (config.upstream.resume && first) await checkResumption({ bot: first[0], ...first[1] }, sending);
  return answers;
}
