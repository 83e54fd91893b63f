import { providerOf } from '../authenticate/oidc/identity-provider.ts';
import { hashPassword } from '../authenticate/password/password-hash.ts';
import { type Users, usersFromFile, usersOf } from '../authenticate/password/users.ts';
import { type Config, ConfigError, loadConfig, type Sources } from '../config/config.ts';
import { isVariable } from '../config/config-variables.ts';
import { risksOf } from '../config/risks.ts';
import { createLogger, type Logger } from '../logger.ts';
import type { SignIn } from '../routes/parts.ts';
import type { Instance } from './instance.ts';
import { type LogOutput, logOutput } from './log-output.ts';
import { type Shutdown, shutdown } from './shutdown.ts';
import type { WorkerDuties } from './worker-channel.ts';

/** Exit code of sysexits.h. */
const EX_CONFIG = 78;
const PARENT_CHECK_MS = 250;
/** The command of a worker, which only its primary can start. */
export const WORKER = 'worker';
/** Asked before anything else: it may be gone by the time the relay listens. */
const PARENT = process.ppid;

/** A log, and where it leaves the process. */
export interface Log {
  readonly logger: Logger;
  readonly output: LogOutput;
}

/** Serves with this environment, in this process or with several workers. */
export async function serve({ environment, inFile }: Sources): Promise<void> {
  const config = orExit(() => loadConfig(environment, inFile));
  const log = openLog(config.logLevel);
  const signIn = await signInOrExit(config, log.logger);
  if (config.workers > 1) await runWorkers(config, environment, log);
  else await run(config, signIn, { log });
}

/** Says whether the relay starts with this environment, and which risks it would take. */
export async function checkConfiguration({ environment, inFile }: Sources): Promise<void> {
  const config = orExit(() => loadConfig(environment, inFile));
  await signInOrExit(config, openLog(config.logLevel).logger);
  const risks = risksOf(config).map((risk) => `Risk: ${risk}`);
  process.stdout.write(['The configuration is good.', ...risks, ''].join('\n'));
}

/** A log on standard output that loses no line when the process exits. `worker` is the number of one of several. */
export function openLog(level: string, worker?: number): Log {
  const output = logOutput({ onDropped: (lines) => logger.error({ lines }, 'log lines dropped') });
  process.on('exit', output.end);
  const root = createLogger(level, output);
  const logger = worker === undefined ? root : root.child({ worker });
  return { logger, output };
}

/** What `read` returns; a configuration that cannot be used is said on standard error, and ends the process. */
export function orExit<T>(read: () => T): T {
  try {
    return read();
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
  const { DEMO_USER } = await import('../demo/start-demo.ts');
  const hash = await hashPassword(DEMO_USER.password);
  return usersOf(() => new Map([[DEMO_USER.name, hash]]), hash);
}

interface RunOptions {
  readonly log: Log;
  /** The number, if this is one of several workers, and how it takes orders. */
  readonly worker?: number;
  readonly obey?: (duties: WorkerDuties) => void;
}

/** Serves in this process. */
async function run(config: Config, signIn: SignIn, { log, worker, obey }: RunOptions): Promise<void> {
  const { logger, output } = log;
  logFaults(logger);
  let instance: Instance | undefined;
  process.on('SIGHUP', () => instance?.reload());
  const { startInstance } = await import('./instance.ts');
  const demo = config.demo ? await import('../demo/start-demo.ts') : undefined;
  const botService = await demo?.startDemo(config.upstream.apiKeys);
  const upstreamUrl = (botService?.url ?? config.upstream.baseUrl) as Readonly<URL>;
  const options = {
    ...{ config, signIn, logger, upstreamUrl, pages: demo?.chatPages(config), worker, unheard },
    droppedLogLines: output.dropped,
  };
  const { port, ...started } = await startInstance(options);
  instance = { port, ...started };
  const base = new URL(config.publicUrl);
  if (config.demo) base.port = String(port);
  const { host, demo: isDemo, bots, authMode } = config;
  logger.info({ host, port, demo: isDemo, bots, authMode, publicUrl: base.origin }, 'listening');
  // In the background: the relay is ready without it.
  if (signIn.mode === 'oidc') void signIn.provider.discover();
  if (worker === undefined) for (const risk of risksOf(config)) logger.warn(risk);
  if (demo) output.write(demo.demoBanner(base.origin + config.basePath, config));
  const stopping = shutdown({
    logger,
    says: () => ({ openMessages: started.openMessages() }),
    close: (signal) => started.close(signal).then(() => botService?.close()),
    exit: (code) => process.exit(code),
  });
  stopOnSignal(stopping);
  if (obey) obey({ ...started, stop: stopping.begin });
  else stopWithParent(stopping);
}

/** Serves as one of several workers, with what the primary tells. */
export async function runAsWorker(worker: number): Promise<void> {
  const { askForEnvironment, obeyPrimary: obey } = await import('./worker-channel.ts');
  const environment = await askForEnvironment();
  const config = orExit(() => loadConfig(environment));
  const log = openLog(config.logLevel, worker);
  await run(config, await signInOrExit(config, log.logger), { log, worker, obey });
}

/** Has workers serve, and keeps them running; this process itself serves their metrics alone. */
async function runWorkers(config: Config, environment: Sources['environment'], log: Log): Promise<void> {
  const { logger, output } = log;
  logFaults(logger);
  const [{ startWorkers }, { workersMetrics }, { startMetricsServer }] = await Promise.all([
    import('./workers.ts'),
    import('../watch/workers-metrics.ts'),
    import('../watch/metrics-server.ts'),
  ]);
  const { host, metricsPort: port, workers: count } = config;
  const registry = workersMetrics(async () => workers.metrics(), output.dropped);
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
