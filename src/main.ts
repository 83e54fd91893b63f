import { config as readDotenv } from 'dotenv';
import type { SignIn } from './app.ts';
import { providerOf } from './authenticate/identity-provider.ts';
import { hashPassword } from './authenticate/password-hash.ts';
import { userCommand } from './authenticate/user-command.ts';
import { type Users, usersFromFile, usersOf } from './authenticate/users.ts';
import { keysCommand } from './bots/keys-command.ts';
import { type Config, ConfigError, type Environment, loadConfig } from './config.ts';
import { isVariable, secretVariables, VARIABLES } from './config-variables.ts';
import type { Instance } from './instance.ts';
import { logOutput } from './log-output.ts';
import { createLogger, type Logger } from './logger.ts';
import { risksOf } from './risks.ts';
import { type Shutdown, shutdown } from './shutdown.ts';
import type { WorkerDuties } from './worker-channel.ts';

const USAGE = `Usage: node dist/main.js                   run the relay
       node dist/main.js --check-config    check the configuration and stop
       node dist/main.js user …            maintain the users file
       node dist/main.js keys [--json]     print the keys of each bot, by fingerprint
       node dist/main.js check …           prove a deployment from where this runs
       node dist/main.js demo-bot …        run the demo's bot service alone
`;
/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;
const PARENT_CHECK_MS = 250;
/** The password with which `check` signs in: no variable of the relay. */
const CHECK_PASSWORD = 'CHECK_PASSWORD';
/** The command of a worker, which only its primary can start. */
const WORKER = 'worker';
/** Asked before anything else: it may be gone by the time the relay listens. */
const PARENT = process.ppid;

await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<void> {
  const [command, ...rest] = args;
  // What it would read has been read for it.
  if (command === WORKER && process.send) return await runAsWorker(Number(rest[0]));
  const environment = readEnvironment();
  if (command === 'user') {
    const terminal = { input: process.stdin, output: process.stdout };
    const file = environment.USERS_FILE || VARIABLES.USERS_FILE.fallback;
    process.exitCode = await userCommand(rest, file, terminal);
  } else if (command === 'keys') {
    process.exitCode = await keysCommand(rest, configOrExit(environment), process.stdout);
  } else if (command === 'demo-bot') {
    await runDemoBot(rest);
  } else if (command === 'check') {
    const { checkCommand } = await import('./check/check-command.ts');
    const terminal = { input: process.stdin, output: process.stdout, progress: process.stderr };
    process.exitCode = await checkCommand(rest, environment, terminal);
  } else if (command === undefined || (command === '--check-config' && rest.length === 0)) {
    const config = configOrExit(environment);
    const logger = openLog(config.logLevel);
    const signIn = await signInOrExit(config, logger);
    const risks = risksOf(config).map((risk) => `Risk: ${risk}`);
    if (command === undefined && config.workers > 1) await runWorkers(config, environment, logger);
    else if (command === undefined) await run(config, signIn, { logger });
    else process.stdout.write(['The configuration is good.', ...risks, ''].join('\n'));
  } else {
    process.stderr.write(USAGE);
    process.exitCode = EX_USAGE;
  }
}

/**
 * The process's environment over what `.env` holds. The file's values stay out of `process.env`, and secrets are
 * taken out of it, so that no child process and no diagnostic report has them.
 */
function readEnvironment(): Environment {
  const fromFile: Record<string, string> = {};
  readDotenv({ processEnv: fromFile, quiet: true });
  for (const name of Object.keys(fromFile).filter((name) => !isVariable(name))) {
    // What does not look like a variable may be the second line of a secret.
    const what = /^[A-Z]+(_[A-Z]+)+$/.test(name) ? `sets ${name}` : 'holds a line that sets something';
    process.stderr.write(`.env ${what} which the relay does not know; quote values of several lines\n`);
  }
  const environment = { ...fromFile, ...process.env };
  for (const name of [...secretVariables(), CHECK_PASSWORD]) delete process.env[name];
  return environment;
}

/** A log that loses no line when the process exits. */
function openLog(level: string): Logger {
  const output = logOutput();
  process.on('exit', output.leave);
  return createLogger(level, output);
}

function configOrExit(environment: Environment): Config {
  try {
    return loadConfig(environment);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(EX_CONFIG);
  }
}

/** What the way by which users sign in needs; a users file that cannot be used ends the process. */
async function signInOrExit(config: Config, logger: Logger): Promise<SignIn> {
  const { authMode: mode } = config;
  if (mode === 'oidc') return { mode, provider: providerOf(config, logger) };
  if (mode === 'guest') return { mode };
  try {
    const report = (err: Error) => logger.error({ err }, 'users file not used');
    return { mode, users: config.demo ? await demoUsers() : await usersFromFile(config.usersFile, report) };
  } catch (error) {
    process.stderr.write(`USERS_FILE: ${(error as Error).message}. Make it with: npm run user -- add NAME\n`);
    process.exit(EX_CONFIG);
  }
}

async function demoUsers(): Promise<Users> {
  const { DEMO_USER } = await import('./demo/start-demo.ts');
  const hash = await hashPassword(DEMO_USER.password);
  return usersOf(() => new Map([[DEMO_USER.name, hash]]), hash);
}

interface RunOptions {
  readonly logger: Logger;
  /** The number, if this is one of several workers, and how it takes orders. */
  readonly worker?: number;
  readonly obey?: (duties: WorkerDuties) => void;
}

/** Serves in this process. */
async function run(config: Config, signIn: SignIn, { logger, worker, obey }: RunOptions): Promise<void> {
  logFaults(logger);
  let instance: Instance | undefined;
  process.on('SIGHUP', () => instance?.reload());
  const { startInstance } = await import('./instance.ts');
  const demo = config.demo ? await import('./demo/start-demo.ts') : undefined;
  const botService = await demo?.startDemo(config.upstream.apiKeys);
  const upstreamUrl = (botService?.url ?? config.upstream.baseUrl) as Readonly<URL>;
  const options = { config, signIn, logger, upstreamUrl, pages: demo?.chatPages(config), worker, unheard };
  const { port, ...started } = await startInstance(options);
  instance = { port, ...started };
  const base = new URL(config.publicUrl);
  if (config.demo) base.port = String(port);
  const { host, demo: isDemo, bots, authMode } = config;
  logger.info({ host, port, demo: isDemo, bots, authMode, publicUrl: base.origin }, 'listening');
  // In the background: the relay is ready without it.
  if (signIn.mode === 'oidc') void signIn.provider.discover();
  if (worker === undefined) for (const risk of risksOf(config)) logger.warn(risk);
  if (demo) process.stdout.write(demo.demoBanner(base.origin + config.basePath, config));
  const stopping = shutdown({
    logger,
    says: () => ({ openMessages: started.openMessages() }),
    close: () => started.close().then(() => botService?.close()),
    exit: (code) => process.exit(code),
  });
  stopOnSignal(stopping);
  if (obey) obey({ ...started, stop: stopping.begin });
  else stopWithParent(stopping);
}

/** Serves as one of several workers, with what the primary tells. */
async function runAsWorker(worker: number): Promise<void> {
  const { askForEnvironment, obeyPrimary: obey } = await import('./worker-channel.ts');
  const config = configOrExit(await askForEnvironment());
  const logger = openLog(config.logLevel).child({ worker });
  await run(config, await signInOrExit(config, logger), { logger, worker, obey });
}

/** Has workers serve, and keeps them running; this process itself serves their metrics alone. */
async function runWorkers(config: Config, environment: Environment, logger: Logger): Promise<void> {
  logFaults(logger);
  const [{ startWorkers }, { workersMetrics }, { startMetricsServer }] = await Promise.all([
    import('./workers.ts'),
    import('./watch/workers-metrics.ts'),
    import('./watch/metrics-server.ts'),
  ]);
  const { host, metricsPort: port, workers: count } = config;
  const registry = workersMetrics(async () => workers.metrics());
  const metricsServer =
    port === undefined
      ? undefined
      : await startMetricsServer({ registry, port, host }).catch(unheard('METRICS_PORT'));
  const known = Object.fromEntries(Object.entries(environment).filter(([name]) => isVariable(name)));
  const onFailure = (code: number) => process.exit(code);
  const workers = startWorkers({ config, args: [WORKER], environment: known, logger, onFailure });
  process.on('SIGHUP', workers.reload);
  logger.info({ workers: count }, 'starting workers');
  for (const risk of risksOf(config)) logger.warn(risk);
  const stopping = shutdown({
    logger,
    says: () => ({ workers: count }),
    close: (signal) => workers.stop(signal).then(() => metricsServer?.close()),
    exit(code) {
      workers.kill();
      process.exit(code);
    },
  });
  stopOnSignal(stopping);
  stopWithParent(stopping);
}

/** The demo's bot service as a process of its own, until SIGTERM or SIGINT. */
async function runDemoBot(args: readonly string[]): Promise<void> {
  const { DEMO_BOT_USAGE, startDemoBot } = await import('./demo/demo-bot.ts');
  const logger = openLog('info');
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

/** An address that is taken or not ours is the operator's to mend: one line says it, no stack. */
function unheard(name: 'PORT' | 'METRICS_PORT'): (error: NodeJS.ErrnoException) => never {
  return ({ code, message }) => {
    const hint = code === 'EADDRINUSE' ? `; set ${name} to another` : '';
    process.stderr.write(`The relay cannot listen on HOST and ${name}: ${message}${hint}\n`);
    process.exit(1);
  };
}

function stopOnSignal({ press }: Shutdown): void {
  process.on('SIGTERM', () => press('SIGTERM')).on('SIGINT', () => press('SIGINT'));
}

/** `npm start` hands a signal to the shell between it and this process, which dies of it and passes nothing on. */
function stopWithParent({ press }: Shutdown): void {
  if (process.env.npm_lifecycle_event !== 'start') return;
  const timer = setInterval(() => {
    if (process.ppid === PARENT) return;
    clearInterval(timer);
    press('parent gone');
  }, PARENT_CHECK_MS);
  timer.unref();
}

/** A fault that nothing caught leaves the process in an unknown state: say so and stop. */
function logFaults(logger: Logger): void {
  process.on('uncaughtException', (err) => {
    logger.fatal({ err }, 'uncaught');
    process.exit(1);
  });
}
