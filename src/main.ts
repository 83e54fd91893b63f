import { config as readDotenv } from 'dotenv';
import { createApp, type SignIn } from './app.ts';
import { providerOf } from './authenticate/identity-provider.ts';
import { hashPassword } from './authenticate/password-hash.ts';
import { userCommand } from './authenticate/user-command.ts';
import { type Users, usersFromFile, usersOf } from './authenticate/users.ts';
import { fingerprints } from './bots/bot-settings.ts';
import { keyReporter } from './bots/key-reports.ts';
import { keysCommand } from './bots/keys-command.ts';
import { liveBots } from './bots/live-bots.ts';
import { type Config, ConfigError, type Environment, loadConfig } from './config.ts';
import { isVariable, secretVariables, VARIABLES } from './config-variables.ts';
import { createLogger, type Logger } from './logger.ts';
import { openRedis } from './redis.ts';
import { type OpenMessages, openMessages } from './relay/open-messages.ts';
import { risksOf } from './risks.ts';
import { createLifecycle, startServer } from './server.ts';
import { openStores } from './stores.ts';
import { createMetrics } from './watch/metrics.ts';
import { startMetricsServer } from './watch/metrics-server.ts';
import { redisMetrics } from './watch/redis-metrics.ts';
import { reloadMetrics } from './watch/reload-metrics.ts';
import { countSessionOperations } from './watch/session-operations.ts';

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
/** npm passes on a signal that the terminal has sent to the whole group already: one press, two signals. */
const SAME_PRESS_MS = 500;
const PARENT_CHECK_MS = 250;
/** The password with which `check` signs in: no variable of the relay. */
const CHECK_PASSWORD = 'CHECK_PASSWORD';
/** Asked before anything else: it may be gone by the time the relay listens. */
const PARENT = process.ppid;

await main(process.argv.slice(2), readEnvironment());

async function main(args: readonly string[], environment: Environment): Promise<void> {
  const [command, ...rest] = args;
  if (command === 'user') {
    const terminal = { input: process.stdin, output: process.stdout };
    process.exitCode = await userCommand(
      rest,
      environment.USERS_FILE || VARIABLES.USERS_FILE.fallback,
      terminal,
    );
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
    const logger = createLogger(config.logLevel);
    const signIn = await signInOrExit(config, logger);
    if (command === undefined) await run(config, signIn, logger);
    else process.stdout.write('The configuration is good.\n');
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

async function run(config: Config, signIn: SignIn, logger: Logger): Promise<void> {
  logFaults(logger);
  const demo = config.demo ? await import('./demo/start-demo.ts') : undefined;
  const botService = await demo?.startDemo(config.upstream.apiKeys);
  const { host, metricsPort: port } = config;
  const metrics = port === undefined ? undefined : createMetrics(fingerprints(config.upstream));
  const redis =
    config.redisUrl &&
    openRedis({ url: config.redisUrl, logger, ...(metrics && { observe: redisMetrics(metrics) }) });
  const bots = liveBots({
    config,
    logger,
    ...(redis && { observeKey: keyReporter(redis) }),
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
  });
  process.on('SIGHUP', () => bots.reload());
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const parts = {
    config,
    logger,
    metrics,
    signIn,
    upstreamUrl: (botService?.url ?? config.upstream.baseUrl) as Readonly<URL>,
    redis,
    ...openStores({ ...config, redis, logger, rate }),
    bots,
    open: openMessages(),
    lifecycle: createLifecycle(),
    pages: demo?.chatPages(config),
  };
  if (metrics) countSessionOperations(parts.sessions, metrics);
  // Before the relay listens and until it has stopped, so that its start and its end can be seen.
  const metricsServer =
    metrics &&
    (await startMetricsServer({ registry: metrics.registry, port, host }).catch(exitUnheard('METRICS_PORT')));
  const server = await startServer(createApp(parts), { ...config, ...parts }).catch(exitUnheard('PORT'));
  const base = new URL(config.publicUrl);
  if (config.demo) base.port = String(server.port);
  logger.info({ host: config.host, port: server.port, demo: config.demo, bots: config.bots }, 'listening');
  for (const risk of risksOf(config)) logger.warn(risk);
  if (demo) process.stdout.write(demo.demoBanner(base.origin + config.basePath, config.authMode));
  onStopSignal(parts, async () => {
    await server.close();
    bots.close();
    await botService?.close();
    parts.sessions.close();
    await parts.streams.close();
    redis?.close();
    await metricsServer?.close();
  });
}

/** The demo's bot service as a process of its own, until SIGTERM or SIGINT. */
async function runDemoBot(args: readonly string[]): Promise<void> {
  const { DEMO_BOT_USAGE, startDemoBot } = await import('./demo/demo-bot.ts');
  const logger = createLogger('info');
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
function exitUnheard(name: 'PORT' | 'METRICS_PORT'): (error: Error) => never {
  return (error) => {
    process.stderr.write(`The relay cannot listen on HOST and ${name}: ${error.message}\n`);
    process.exit(1);
  };
}

interface StopContext {
  readonly logger: Logger;
  readonly open: OpenMessages;
}

/** The first SIGTERM or SIGINT shuts down in order; a second one exits at once. */
function onStopSignal({ logger, open }: StopContext, close: () => Promise<void>): void {
  let stoppingSince: number | undefined;
  const stop = async (signal: string) => {
    if (stoppingSince !== undefined) {
      if (performance.now() - stoppingSince < SAME_PRESS_MS) return;
      logger.warn({ signal }, 'stopped at once');
      process.exit(1);
    }
    stoppingSince = performance.now();
    logger.info({ signal, openMessages: open.count() }, 'shutting down');
    await close();
    logger.info('stopped');
    process.exit(0);
  };
  process.on('SIGTERM', stop).on('SIGINT', stop);
  if (process.env.npm_lifecycle_event === 'start') whenParentIsGone(() => stop('parent gone'));
}

/** `npm start` hands a signal to the shell between it and this process, which dies of it and passes nothing on. */
function whenParentIsGone(stop: () => void): void {
  const timer = setInterval(() => {
    if (process.ppid === PARENT) return;
    clearInterval(timer);
    stop();
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
