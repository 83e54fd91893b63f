import { createApp } from '../app.ts';
import { connectionBounds, reportRefused } from '../arrive/connection-bounds.ts';
import type { Users } from '../authenticate/password/users.ts';
import { noteLostSessions } from '../authenticate/sessions/lost-sessions.ts';
import type { SessionStore } from '../authenticate/sessions/session-store.ts';
import { fingerprints } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { heldBytes } from '../relay/message/held-bytes.ts';
import { openMessages } from '../relay/message/open-messages.ts';
import type { RunStore } from '../runs/run-store.ts';
import { Runs } from '../runs/runs.ts';
import type { Redis } from '../storage/redis.ts';
import { keyReporter } from '../watch/key-reports.ts';
import type { Metrics } from '../watch/metrics.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { keyMetrics, redisMetrics, reloadMetrics } from '../watch/relay-metrics.ts';
import { countSessionOperations } from '../watch/session-operations.ts';
import { BUILD } from './build-info.ts';
import type { DemoParts } from './demo-parts.ts';
import { type LiveBotsOptions, liveBots } from './live-bots.ts';
import { createLifecycle, startServer } from './server.ts';
import type { StopSignal } from './shutdown.ts';
import { signInOf } from './sign-in.ts';
import { openStores } from './stores.ts';

/** How many bytes all streams of an instance hold together. */
const MAX_HELD_BYTES = 64 << 20;
/** How many bytes of runs an instance keeps, so that they can be joined. */
const MAX_RUN_BYTES = 64 << 20;
/** How much longer than its waits for slots a message may wait, in ms: as long as the service may ask it to. */
const WAIT_MARGIN_MS = 65_000;

export interface InstanceOptions extends Pick<LiveBotsOptions, 'pollEveryMs'> {
  readonly config: Config;
  readonly logger: Logger;
  /** How many log lines were dropped so far. */
  readonly droppedLogLines?: () => number;
  /** Users instead of those of the users file. */
  readonly users?: Users;
  /** Returns the handler for a port that cannot be opened; `name` is its variable. By default `startInstance` throws. */
  readonly cannotListen?: (name: 'PORT' | 'METRICS_PORT') => (error: NodeJS.ErrnoException) => never;
}

/** A relay that listens. */
export interface Instance {
  readonly port: number;
  readonly parts: Awaited<ReturnType<typeof openParts>>;
  /** Reads the files of keys and bots again. */
  reload(): void;
  /** Shuts down in order; resolves when everything is closed. SIGINT skips the delay. */
  close(signal?: StopSignal): Promise<void>;
}

/**
 * Builds all parts of the relay, and listens.
 * @throws ConfigError if the users file cannot be used
 */
export async function startInstance(options: InstanceOptions): Promise<Instance> {
  const { config, cannotListen = () => rethrow } = options;
  const { host, metricsPort: port } = config;
  const parts = await openParts(options);
  const { metrics, redis, bots } = parts;
  // Runs before the relay listens and until it has stopped, so that its start and its shutdown can be observed.
  const metricsServer =
    metrics && port !== undefined
      ? await startMetricsServer({ registry: metrics.registry, port, host }).catch(
          cannotListen('METRICS_PORT'),
        )
      : undefined;
  const onConnectionCut = metrics && (() => metrics.connectionsCut.inc());
  const serverOptions = { ...config, ...parts, onConnectionCut };
  const server = await startServer(createApp(parts), serverOptions).catch(cannotListen('PORT'));
  return {
    port: server.port,
    parts,
    reload: bots.reload,
    async close(signal) {
      await server.close(signal);
      bots.close();
      parts.sessions.close();
      await parts.runStore.close();
      await parts.streams.close();
      redis?.close();
      await metricsServer?.close();
      await parts.demo?.close();
    },
  };
}

/** Opens all parts that the application is built from. */
async function openParts(options: InstanceOptions) {
  const { config, logger, users, pollEveryMs } = options;
  const signIn = await signInOf(config, logger, users);
  const demo = config.demo ? await (await import('./demo-parts.ts')).startDemoParts(config) : undefined;
  const metrics = await metricsOf(options);
  const redis = await redisOf(options, metrics);
  const countKey = metrics && keyMetrics(metrics);
  const reportKey = redis && keyReporter(redis);
  const bots = liveBots({
    config,
    logger,
    observeKey(use) {
      countKey?.(use);
      reportKey?.(use);
    },
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
    ...(pollEveryMs !== undefined && { pollEveryMs }),
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const runs = runSettings(config);
  const stores = await openStores({ ...config, redis, logger, rate, runs });
  return {
    ...{ config, logger, signIn, demo, metrics, redis, bots, ...stores },
    sessions: metrics ? countedSessions(stores.sessions, metrics) : stores.sessions,
    upstreamUrl: (demo?.upstreamUrl ?? config.upstream.baseUrl) as Readonly<URL>,
    pages: await clientPages(config, demo?.chat),
    open: openMessages(),
    held: heldBytes(MAX_HELD_BYTES),
    runs: runsOf({ store: stores.runStore, settings: runs, logger, metrics }),
    bounds: connectionBounds({
      ...config.connections,
      onRefused: reportRefused(logger, metrics && ((reason) => metrics.connectionsRefused.inc({ reason }))),
    }),
    lifecycle: createLifecycle(),
  };
}

/** How long runs may take, and how much of them is kept. */
function runSettings({ join, rate, upstream }: Config) {
  const maxWaitMs = rate.windowMs + rate.maxWaitMs + WAIT_MARGIN_MS;
  return { ...join, maxWaitMs, maxExecutionMs: upstream.maxExecutionMs };
}

/** The runs of this instance. */
function runsOf({
  store,
  settings,
  logger,
  metrics,
}: {
  readonly store: RunStore;
  readonly settings: ReturnType<typeof runSettings>;
  readonly logger: Logger;
  readonly metrics: Metrics | undefined;
}): Runs {
  return new Runs({
    store,
    times: settings,
    maxBytes: settings.maxBytes,
    budget: heldBytes(MAX_RUN_BYTES),
    onGrace({ requestId }, outcome) {
      metrics?.runsLeft.inc({ outcome });
      logger.info({ requestId, outcome }, 'run without a client');
    },
  });
}

/** Counts the operations of a store of sessions, and the sessions that it has lost. */
function countedSessions(store: SessionStore, metrics: Metrics): SessionStore {
  return noteLostSessions(countSessionOperations(store, metrics), () => metrics.sessionsLost.inc());
}

/** The package of the client and the chat. */
async function clientPages(config: Config, demo: DemoParts['chat'] | undefined) {
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

/** Redis, if it is configured. Its library is loaded only then. */
async function redisOf(
  { config: { redis }, logger }: InstanceOptions,
  metrics: Metrics | undefined,
): Promise<Redis | undefined> {
  if (!redis) return undefined;
  const { openRedis } = await import('../storage/redis.ts');
  return openRedis({ ...redis, logger, ...(metrics && { observe: redisMetrics(metrics) }) });
}

function rethrow(error: Error): never {
  throw error;
}
