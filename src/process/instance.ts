import { createApp } from '../app.ts';
import { connectionBounds } from '../arrive/connection-bounds.ts';
import type { Users } from '../authenticate/password/users.ts';
import { noteLostSessions } from '../authenticate/sessions/lost-sessions.ts';
import { fingerprints } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import type { DemoChat } from '../page/bot-chat.ts';
import { heldBytes } from '../relay/message/held-bytes.ts';
import { openMessages } from '../relay/message/open-messages.ts';
import { botServices } from '../routes/bot-services.ts';
import type { Stores } from '../routes/dependencies.ts';
import { sharedSteps } from '../routes/shared-steps.ts';
import type { RunLeases, RunStore } from '../runs/run-store.ts';
import { Runs, type RunsOptions } from '../runs/runs.ts';
import type { Redis } from '../storage/redis.ts';
import type { Metrics } from '../watch/metrics.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { redisMetrics } from '../watch/relay-metrics.ts';
import { countSessionOperations } from '../watch/session-operations.ts';
import { BUILD } from './build-info.ts';
import type { PortName } from './cannot-listen.ts';
import { type LiveBotsOptions, liveBots } from './live-bots.ts';
import { observersOf } from './observers.ts';
import { createLifecycle, startServer } from './server.ts';
import type { StopSignal } from './shutdown.ts';
import { signInOf } from './sign-in.ts';
import { openStores } from './stores.ts';

/** How many bytes all streams of an instance hold together. */
const MAX_HELD_BYTES = 64 << 20;
/** How many bytes of runs an instance keeps, so that they can be joined. */
const MAX_RUN_BYTES = 64 << 20;
/**
 * How much longer than its waits for slots a message may wait, in ms: after a 429, as long as the service asks, and a
 * margin.
 */
const WAIT_MARGIN_MS = 65_000;

export interface InstanceOptions extends Pick<LiveBotsOptions, 'pollEveryMs'> {
  readonly config: Config;
  readonly logger: Logger;
  /** How many log lines were dropped so far. */
  readonly droppedLogLines?: () => number;
  /** Users instead of those of the users file. */
  readonly users?: Users;
  /** Replaces some of the times of runs in Redis. */
  readonly leases?: Partial<RunLeases>;
  /** Returns the handler for a port that cannot be opened; `name` is its variable. By default `startInstance` throws. */
  readonly cannotListen?: (name: PortName) => (error: NodeJS.ErrnoException) => never;
}

/** A relay that listens. */
export type Instance = Awaited<ReturnType<typeof startInstance>>;

/**
 * Builds all parts of the relay, each from those above it, and listens.
 * @throws ConfigError if the users file, or the data of the embedded bot service, cannot be used
 */
export async function startInstance(options: InstanceOptions) {
  const { config, logger, users, pollEveryMs, leases = {}, cannotListen = () => rethrow } = options;
  const signIn = await signInOf(config, logger, users);
  const demo = config.demo
    ? await (await import('./demo.ts')).startDemo(config, { logger, cannotListen })
    : undefined;
  const upstreamUrl = (demo?.url ?? config.upstream.baseUrl) as Readonly<URL>;
  const metrics = await metricsOf(options);
  const redis = await redisOf(config, logger, metrics);
  const observe = observersOf({ logger, metrics, redis });
  const bots = liveBots({
    config,
    logger,
    pollEveryMs,
    observeKey: observe.key,
    observeReload: observe.reload,
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const runLimits = runLimitsOf(config, leases);
  const opened = await openStores({ redis, logger, rate, session: config.session, runs: runLimits });
  const stores = metrics ? observedStores(opened, metrics) : opened;
  const { sessions, counts, attempts } = stores;
  const open = openMessages();
  const held = heldBytes(MAX_HELD_BYTES);
  const runs = runsOf(stores.runStore, runLimits, observe.runInGrace);
  const bounds = connectionBounds({ ...config.connections, onRefused: observe.connectionRefused });
  const lifecycle = createLifecycle();
  const checks = { accepting: async () => lifecycle.isReady(), ...(redis && { redis: redis.answers }) };
  const pages = await clientPages(config, demo?.chat);
  const steps = sharedSteps({ config, logger, counts, sessions });
  const common = { config, logger, metrics, bots };
  const services = botServices({ ...common, ...stores, upstreamUrl, rate, open, held, runs }, steps);
  const others = { redis, signIn, sessions, counts, attempts, bounds, lifecycle, checks, pages };
  const app = createApp({ ...common, ...others }, steps, services);
  metrics?.readAtScrape({ checks, openMessages: open.count, runBytes: () => runs.bytes() });
  // Runs before the relay listens and until it has stopped, so that its start and its shutdown can be observed.
  const metricsServer = await metricsServerOf(config, metrics).catch(cannotListen('METRICS_PORT'));
  const serving = { logger, bounds, lifecycle, open, runs, onConnectionCut: observe.connectionCut };
  const server = await startServer(app, { ...config, ...serving }).catch(cannotListen('PORT'));
  const close = async (signal?: StopSignal): Promise<void> => {
    await server.close(signal);
    bots.close();
    sessions.close();
    await stores.runStore.close();
    await stores.streams.close();
    redis?.close();
    await metricsServer?.close();
    await demo?.close();
  };
  const parts = { ...common, ...stores, redis, signIn, open, held, runs, lifecycle };
  return { port: server.port, parts, demo, reload: bots.reload, close };
}

/** How long runs may take, and how long and how much of them is kept. */
function runLimitsOf({ join, rate, upstream }: Config, leases: Partial<RunLeases>) {
  const maxWaitMs = rate.windowMs + rate.maxWaitMs + WAIT_MARGIN_MS;
  return { ...join, leases, maxWaitMs, maxExecutionMs: upstream.maxExecutionMs };
}

/** The runs of this instance. */
function runsOf(
  store: RunStore,
  limits: ReturnType<typeof runLimitsOf>,
  onGrace: RunsOptions['onGrace'],
): Runs {
  const { maxBytes } = limits;
  return new Runs({ store, times: limits, maxBytes, bound: heldBytes(MAX_RUN_BYTES), onGrace });
}

/** The stores, with a count of the operations on sessions, and of the sessions that were lost. */
function observedStores(stores: Stores, metrics: Metrics): Stores {
  const counted = countSessionOperations(stores.sessions, metrics);
  return { ...stores, sessions: noteLostSessions(counted, () => metrics.sessionsLost.inc()) };
}

/** The package of the client and the chat. */
async function clientPages(config: Config, demo: DemoChat | undefined) {
  const [{ clientPackage }, { botChatPages }] = await Promise.all([
    import('../page/client-package.ts'),
    import('../page/bot-chat.ts'),
  ]);
  return [...clientPackage(), ...botChatPages(config, demo)];
}

/** The metrics, if they are served. Their library is loaded only then. */
async function metricsOf({ config, droppedLogLines }: InstanceOptions): Promise<Metrics | undefined> {
  if (config.metricsPort === undefined) return undefined;
  const { createMetrics } = await import('../watch/metrics.ts');
  const metrics = createMetrics(fingerprints(config.upstream), droppedLogLines);
  metrics.buildInfo.set({ ...BUILD }, 1);
  return metrics;
}

/** The server of the metrics, if they are served. */
async function metricsServerOf({ host, metricsPort: port }: Config, metrics: Metrics | undefined) {
  return metrics && startMetricsServer({ registry: metrics.registry, port, host });
}

/** Redis, if it is configured. Its library is loaded only then. */
async function redisOf(
  { redis }: Config,
  logger: Logger,
  metrics: Metrics | undefined,
): Promise<Redis | undefined> {
  if (!redis) return undefined;
  const { openRedis } = await import('../storage/redis.ts');
  return openRedis({ ...redis, logger, ...(metrics && { observe: redisMetrics(metrics) }) });
}

function rethrow(error: Error): never {
  throw error;
}
