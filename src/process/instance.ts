import { createApp } from '../app.ts';
import type { Users } from '../authenticate/password/users.ts';
import { fingerprints } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { heldBytes } from '../relay/message/held-bytes.ts';
import { openMessages } from '../relay/message/open-messages.ts';
import type { Redis } from '../storage/redis.ts';
import { keyReporter } from '../watch/key-reports.ts';
import type { Metrics } from '../watch/metrics.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { redisMetrics } from '../watch/redis-metrics.ts';
import { reloadMetrics } from '../watch/reload-metrics.ts';
import { countSessionOperations } from '../watch/session-operations.ts';
import type { DemoParts } from './demo-parts.ts';
import { type LiveBotsOptions, liveBots } from './live-bots.ts';
import { createLifecycle, startServer } from './server.ts';
import { signInOf } from './sign-in.ts';
import { trySpoolFolder } from './spool-folder.ts';
import { openStores } from './stores.ts';
import type { StopSignal } from './worker-channel.ts';

/** How long a worker waits for Redis before it listens, in ms. */
const REDIS_WAIT_MS = 2_000;
/** How many bytes all streams of an instance hold together. */
const MAX_HELD_BYTES = 64 << 20;
/** How many bytes of runs an instance keeps, so that they can be joined. */
const MAX_RUN_BYTES = 64 << 20;

export interface InstanceOptions extends Pick<LiveBotsOptions, 'pollEveryMs'> {
  readonly config: Config;
  readonly logger: Logger;
  /** The number of this worker, if there are several. */
  readonly worker?: number | undefined;
  /** Whether the instance serves its metrics on METRICS_PORT. A worker does not: its primary reads `metricsText`. */
  readonly servesMetrics: boolean;
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
  /** The metrics in Prometheus's text format; empty if none are kept. */
  metricsText(): Promise<string>;
  /** Shuts down in order; resolves when everything is closed. SIGINT skips the delay. */
  close(signal?: StopSignal): Promise<void>;
}

/**
 * Builds all parts of the relay, and listens.
 * @throws ConfigError if the users file, or the folder of uploads, cannot be used
 */
export async function startInstance(options: InstanceOptions): Promise<Instance> {
  const { config, worker, servesMetrics, cannotListen = () => rethrow } = options;
  const { host, metricsPort: port } = config;
  const parts = await openParts(options);
  const { metrics, redis, bots } = parts;
  // Runs before the relay listens and until it has stopped, so that its start and its shutdown can be observed.
  const metricsServer =
    metrics && port !== undefined && servesMetrics
      ? await startMetricsServer({ registry: metrics.registry, port, host }).catch(
          cannotListen('METRICS_PORT'),
        )
      : undefined;
  // A readiness probe reaches one worker, which answers for all. So no worker listens before it can use sessions.
  if (worker !== undefined && redis) await redis.ready(REDIS_WAIT_MS);
  const onConnectionCut = metrics && (() => metrics.connectionsCut.inc());
  const serverOptions = { ...config, ...parts, onConnectionCut };
  const server = await startServer(createApp(parts), serverOptions).catch(cannotListen('PORT'));
  return {
    port: server.port,
    parts,
    reload: bots.reload,
    metricsText: async () => metrics?.registry.metrics() ?? '',
    async close(signal) {
      await server.close(signal);
      bots.close();
      parts.sessions.close();
      await parts.runs.close();
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
  await trySpoolFolder(config);
  const demo = config.demo ? await (await import('./demo-parts.ts')).startDemoParts(config) : undefined;
  const metrics = await metricsOf(options);
  const redis = await redisOf(options, metrics);
  const bots = liveBots({
    config,
    logger,
    ...(redis && { observeKey: keyReporter(redis) }),
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
    ...(pollEveryMs !== undefined && { pollEveryMs }),
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const stores = await openStores({ ...config, redis, logger, rate });
  return {
    ...{ config, logger, signIn, demo, metrics, redis, bots, ...stores },
    sessions: metrics ? countSessionOperations(stores.sessions, metrics) : stores.sessions,
    upstreamUrl: (demo?.upstreamUrl ?? config.upstream.baseUrl) as Readonly<URL>,
    pages: await clientPages(config, demo?.chat),
    open: openMessages(),
    held: heldBytes(MAX_HELD_BYTES),
    runBytes: heldBytes(MAX_RUN_BYTES),
    lifecycle: createLifecycle(),
  };
}

/** The package of the client and the chat, if they are served. */
async function clientPages(config: Config, demo: DemoParts['chat'] | undefined) {
  if (!config.clientFiles) return [];
  const [{ clientPackage }, { botChatPages }] = await Promise.all([
    import('../page/client-package.ts'),
    import('../page/bot-chat.ts'),
  ]);
  return [...clientPackage(), ...botChatPages(config, demo)];
}

/** The metrics, if they are served. Their library is loaded only then. */
async function metricsOf({ config, worker, droppedLogLines }: InstanceOptions): Promise<Metrics | undefined> {
  if (config.metricsPort === undefined) return undefined;
  const { createMetrics } = await import('../watch/metrics.ts');
  return createMetrics(fingerprints(config.upstream), worker, droppedLogLines);
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
