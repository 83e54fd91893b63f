import { config as readDotenv } from 'dotenv';
import { checkNames, loadConfig, type Sources } from '../config/config.ts';
import { secretVariables, VARIABLES } from '../config/config-variables.ts';
import { checkConfiguration, openLog, orExit, runAsWorker, serve, WORKER } from '../process/serve.ts';
import { KEYS_USAGE, keysCommand } from './keys-command.ts';
import { USER_USAGE, userCommand } from './user-command.ts';

const USAGE = `Usage: node dist/main.js                   run the relay
       node dist/main.js --check-config    check the configuration and stop
       node dist/main.js user …            maintain the users file
       node dist/main.js keys [--json]     print the keys of each bot, by fingerprint
       node dist/main.js check …           prove a deployment from where this runs
       node dist/main.js demo-bot …        run the demo's bot service alone
       node dist/main.js --help            print this; behind a command, how to use that
       node dist/main.js --version         print the version
`;
/** Exit code of sysexits.h. */
const EX_USAGE = 64;
/** The password with which `check` signs in: no variable of the relay. */
const CHECK_PASSWORD = 'CHECK_PASSWORD';

/** Does what the command line says. `version` is the program's. */
export async function runCommand(args: readonly string[], version: string): Promise<void> {
  const [command, ...rest] = args;
  // What it would read has been read for it.
  if (command === WORKER && process.send) return await runAsWorker(Number(rest[0]));
  const asksFor = (...names: string[]) => args.some((arg) => names.includes(arg));
  if (asksFor('--help', '-h')) process.stdout.write(await usageOf(command));
  else if (asksFor('--version', '-v')) process.stdout.write(`${version}\n`);
  else await run(command, rest, readEnvironment());
}

async function run(command: string | undefined, args: readonly string[], sources: Sources): Promise<void> {
  const { environment, inFile } = sources;
  if (command === 'user') {
    orExit(() => checkNames(sources));
    const terminal = { input: process.stdin, output: process.stdout };
    const file = environment.USERS_FILE || VARIABLES.USERS_FILE.fallback;
    process.exitCode = await userCommand(args, file, terminal);
  } else if (command === 'keys') {
    process.exitCode = await keysCommand(
      args,
      orExit(() => loadConfig(environment, inFile)),
      process.stdout,
    );
  } else if (command === 'demo-bot') {
    await runDemoBot(args);
  } else if (command === 'check') {
    const { checkCommand } = await import('../check/check-command.ts');
    const terminal = { input: process.stdin, output: process.stdout, progress: process.stderr };
    process.exitCode = await checkCommand(args, sources, terminal);
  } else if (command === undefined) {
    await serve(sources);
  } else if (command === '--check-config' && args.length === 0) {
    await checkConfiguration(sources);
  } else {
    process.stderr.write(USAGE);
    process.exitCode = EX_USAGE;
  }
}

async function usageOf(command: string | undefined): Promise<string> {
  if (command === 'user') return USER_USAGE;
  if (command === 'keys') return KEYS_USAGE;
  if (command === 'demo-bot') return (await import('../demo/demo-bot.ts')).DEMO_BOT_USAGE;
  if (command === 'check') return (await import('../check/check-command.ts')).CHECK_USAGE;
  return USAGE;
}

/**
 * The process's environment over what `.env` holds. The file's values stay out of `process.env`, and secrets are
 * taken out of it, so that no child process and no diagnostic report has them.
 */
function readEnvironment(): Sources {
  const fromFile: Record<string, string> = {};
  readDotenv({ processEnv: fromFile, quiet: true });
  const environment = { ...fromFile, ...process.env };
  for (const name of [...secretVariables(), CHECK_PASSWORD]) delete process.env[name];
  return { environment, inFile: Object.keys(fromFile).filter((name) => name !== CHECK_PASSWORD) };
}

/** The demo's bot service as a process of its own, until SIGTERM or SIGINT. */
async function runDemoBot(args: readonly string[]): Promise<void> {
  const { DEMO_BOT_USAGE, startDemoBot } = await import('../demo/demo-bot.ts');
  const { logger } = openLog('info');
  try {
    const service = await startDemoBot(args);
    const stop = async (signal: string) => {
      logger.info({ signal }, 'stopped');
      await service.close();
      process.exit(0);
    };
    process.once('SIGTERM', stop).once('SIGINT', stop);
    logger.info({ host: service.url.hostname, port: Number(service.url.port) }, 'listening');
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${DEMO_BOT_USAGE}`);
    process.exitCode = EX_USAGE;
  }
}
