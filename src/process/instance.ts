import { createApp } from '../app.ts';
import type { Users } from '../authenticate/password/users.ts';
import { fingerprints } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { openMessages } from '../relay/message/open-messages.ts';
import { openRedis } from '../storage/redis.ts';
import { keyReporter } from '../watch/key-reports.ts';
import { createMetrics } from '../watch/metrics.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { redisMetrics } from '../watch/redis-metrics.ts';
import { reloadMetrics } from '../watch/reload-metrics.ts';
import { countSessionOperations } from '../watch/session-operations.ts';
import { type LiveBotsOptions, liveBots } from './live-bots.ts';
import { createLifecycle, startServer } from './server.ts';
import { signInOf } from './sign-in.ts';
import { openStores } from './stores.ts';
import type { StopSignal } from './worker-channel.ts';

/** How long a worker waits for Redis before it listens, in ms. */
const REDIS_WAIT_MS = 2_000;

export interface InstanceOptions extends Pick<LiveBotsOptions, 'lookEveryMs'> {
  readonly config: Config;
  readonly logger: Logger;
  /** Its number, if it is one of several workers. */
  readonly worker?: number | undefined;
  /** Whether it serves its metrics on METRICS_PORT; if not, whoever asks by `metricsText` does. */
  readonly servesMetrics: boolean;
  /** Lines of the log that were dropped so far. */
  readonly droppedLogLines?: () => number;
  /** Users instead of those of the users file. */
  readonly users?: Users;
  /** Makes what to do where the port of the variable `name` cannot be had; without it, `startInstance` throws. */
  readonly cannotListen?: (name: 'PORT' | 'METRICS_PORT') => (error: NodeJS.ErrnoException) => never;
}

/** A relay that listens. */
export interface Instance {
  readonly port: number;
  readonly parts: Awaited<ReturnType<typeof openParts>>;
  /** Reads the files of keys and bots now. */
  reload(): void;
  /** The metrics in Prometheus's text format; nothing if none are kept. */
  metricsText(): Promise<string>;
  /** Shuts down in order, as the signal asks; resolves when all is closed. */
  close(signal?: StopSignal): Promise<void>;
}

/**
 * Builds all that the relay is made of, and listens.
 * @throws ConfigError if the users file cannot be used
 */
export async function startInstance(options: InstanceOptions): Promise<Instance> {
  const { config, worker, servesMetrics, cannotListen = () => rethrow } = options;
  const { host, metricsPort: port } = config;
  const parts = await openParts(options);
  const { metrics, redis, bots } = parts;
  // Before the relay listens and until it has stopped, so that its start and its end can be seen.
  const metricsServer =
    metrics && port !== undefined && servesMetrics
      ? await startMetricsServer({ registry: metrics.registry, port, host }).catch(
          cannotListen('METRICS_PORT'),
        )
      : undefined;
  // Whether a relay is ready, one of its workers says for all: none may listen that would refuse what needs a session.
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
      await parts.streams.close();
      redis?.close();
      await metricsServer?.close();
      await parts.demo?.close();
    },
  };
}

/** All that the application is built from. */
async function openParts(options: InstanceOptions) {
  const { config, logger, worker, users, droppedLogLines, lookEveryMs } = options;
  const signIn = await signInOf(config, logger, users);
  const demo = config.demo ? await (await import('./demo-parts.ts')).startDemoParts(config) : undefined;
  const metrics =
    config.metricsPort === undefined
      ? undefined
      : createMetrics(fingerprints(config.upstream), worker, droppedLogLines);
  const redis =
    config.redisUrl &&
    openRedis({ url: config.redisUrl, logger, ...(metrics && { observe: redisMetrics(metrics) }) });
  const bots = liveBots({
    config,
    logger,
    ...(redis && { observeKey: keyReporter(redis) }),
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
    ...(lookEveryMs !== undefined && { lookEveryMs }),
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const stores = openStores({ ...config, redis, logger, rate });
  return {
    ...{ config, logger, signIn, demo, metrics, redis, bots, ...stores },
    sessions: metrics ? countSessionOperations(stores.sessions, metrics) : stores.sessions,
    upstreamUrl: (demo?.upstreamUrl ?? config.upstream.baseUrl) as Readonly<URL>,
    pages: demo?.pages,
    open: openMessages(),
    lifecycle: createLifecycle(),
  };
}

function rethrow(error: Error): never {
  throw error;
}
