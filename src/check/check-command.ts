import type { Terminal } from '../authenticate/password/ask-password.ts';
import { type Config, ConfigError, loadConfig } from '../config/config.ts';
import { readEnvironment, type Sources } from '../config/environment.ts';
import { keyRings } from '../relay/upstream/key-rings.ts';
import { maskKeys } from '../relay/upstream/upstream-request.ts';
import { type Secret, secret } from '../secret.ts';
import { checkAddress } from './check-address.ts';
import { type CheckOptions, readArguments } from './check-arguments.ts';
import { checkConfiguration, reportConfigProblems } from './check-configuration.ts';
import { botsToAsk, checkKeys, keysToTry } from './check-keys.ts';
import { checkProvider } from './check-provider.ts';
import { checkRedis } from './check-redis.ts';
import { checkThrough } from './check-through.ts';
import { collectFindings, quoter, type Report } from './findings.ts';
import { messageSlots } from './message-slots.ts';
import type { Observation } from './observe-stream.ts';
import { count, findingsAsJson, findingsAsTable, problemsIn } from './print-findings.ts';
import { testMessages } from './send-message.ts';
import { type SignInPassword, signInPassword } from './sign-in-password.ts';
import type { Visitor } from './way.ts';

export { CHECK_USAGE as USAGE } from './check-arguments.ts';

/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

/** Where a check prints: its result to `output`, and what it is about to do to `progress`. */
export interface CheckTerminal extends Terminal {
  readonly progress: Terminal['output'];
}

/** Proves the deployment that this environment configures, at this terminal. Returns the exit code. */
export function run(args: readonly string[]): Promise<number> {
  const terminal = { input: process.stdin, output: process.stdout, progress: process.stderr };
  return checkCommand(args, readEnvironment(), terminal);
}

/**
 * The command that proves a deployment from where it runs: configuration, Redis, the bot service and its keys, and
 * the way through the load balancer. Returns the exit code: 0 no problem, 1 problems, 64 wrong arguments, 78 a
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
  let signIn: SignInPassword | undefined;
  try {
    const { input, progress } = terminal;
    if (options.user && mode === 'password')
      signIn = await signInPassword(options, environment, { input, output: progress });
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
  let isGood = false;
  if ('problems' in loaded) reportConfigProblems(loaded.problems, report);
  else {
    const { config } = loaded;
    isGood = checkConfiguration(config, environment, report);
    const visitor = visitorOf(mode, options.user, signIn);
    const run = { config, options, visitor, report, hide, messages, terminal };
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

function visitorOf(
  mode: Config['authMode'],
  user: string | undefined,
  signIn: SignInPassword | undefined,
): Visitor | undefined {
  if (mode === 'guest') return 'guest';
  return user !== undefined && signIn ? { user, password: signIn.password } : undefined;
}

interface Run {
  readonly config: Config;
  readonly options: CheckOptions;
  readonly visitor: Visitor | undefined;
  readonly report: Report;
  /** Has these masked in everything that is reported from now on. */
  readonly hide: (secrets: readonly Secret[]) => void;
  readonly mask: (text: string) => string;
  readonly messages: { sent: number };
  readonly terminal: CheckTerminal;
}

async function runChecks(run: Run): Promise<void> {
  const { config, options, visitor, report, hide, mask } = run;
  hide(keyRings({ settings: config.upstream, bots: config.bots }).keys());
  const quote = quoter(mask);
  const isOidc = config.authMode === 'oidc';
  if (isOidc) hide([config.oidc.clientSecret]);
  if (options.user !== undefined) noteUnusedUser(config.authMode, report);
  const signInEndpoint = isOidc ? await checkProvider(config, report) : undefined;
  const redis = await checkRedis(config.redisUrl, report);
  try {
    const bots = botsToAsk(config, options.bots, report);
    announce(run, bots);
    const answers = await checkService(run, { bots, slots: messageSlots(config, redis) });
    const { through, text } = options;
    if (!through) return;
    const bot = bots.find((one) => answers.has(one)) ?? bots[0];
    await checkThrough({
      config,
      through,
      report,
      quote,
      mask,
      visitor,
      signInEndpoint,
      hide: (value) => hide([secret(value)]),
      message: options.messages && bot !== undefined ? { bot, text } : undefined,
      onSend: () => run.messages.sent++,
      direct: bot === undefined ? undefined : answers.get(bot),
    });
  } finally {
    redis?.close();
  }
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

/** Says what the check will cost before it does. */
function announce({ config, options, visitor, terminal }: Run, bots: readonly string[]): void {
  const keys = config.demo ? [] : keysToTry(config, bots).flatMap((one) => one.keys);
  const through = options.through && visitor && bots.length > 0 ? 1 : 0;
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
