import { createApp } from '../app.ts';
import { fingerprints } from '../bots/bot-settings.ts';
import type { Config } from '../config/config.ts';
import type { Logger } from '../logger.ts';
import { openMessages } from '../relay/message/open-messages.ts';
import type { Parts, SignIn } from '../routes/parts.ts';
import { openRedis } from '../storage/redis.ts';
import { keyReporter } from '../watch/key-reports.ts';
import { createMetrics } from '../watch/metrics.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { redisMetrics } from '../watch/redis-metrics.ts';
import { reloadMetrics } from '../watch/reload-metrics.ts';
import { countSessionOperations } from '../watch/session-operations.ts';
import { liveBots } from './live-bots.ts';
import { createLifecycle, startServer } from './server.ts';
import { openStores } from './stores.ts';
import type { StopSignal } from './worker-channel.ts';

/** How long a worker waits for Redis before it listens, in ms. */
const REDIS_WAIT_MS = 2_000;

export interface InstanceOptions extends Pick<Parts, 'upstreamUrl' | 'pages'> {
  readonly config: Config;
  readonly signIn: SignIn;
  readonly logger: Logger;
  /** Its number, if it is one of several workers: then whoever asks by `metricsText` serves the metrics. */
  readonly worker?: number | undefined;
  /** Lines of the log that were dropped so far. */
  readonly droppedLogLines: () => number;
  /** What to do where the port of the variable `name` cannot be had. */
  readonly unheard: (name: 'PORT' | 'METRICS_PORT') => (error: NodeJS.ErrnoException) => never;
}

/** A relay that listens. */
export interface Instance {
  readonly port: number;
  /** How many messages are not answered to their end. */
  openMessages(): number;
  /** Reads the files of keys and bots now. */
  reload(): void;
  /** The metrics in Prometheus's text format; nothing if none are kept. */
  metricsText(): Promise<string>;
  /** Shuts down in order, as the signal asks; resolves when all is closed. */
  close(signal: StopSignal): Promise<void>;
}

/** Builds all that the relay is made of, and listens. */
export async function startInstance(options: InstanceOptions): Promise<Instance> {
  const { config, logger, worker, droppedLogLines, unheard } = options;
  const { host, metricsPort: port } = config;
  const metrics =
    port === undefined ? undefined : createMetrics(fingerprints(config.upstream), worker, droppedLogLines);
  const redis =
    config.redisUrl &&
    openRedis({ url: config.redisUrl, logger, ...(metrics && { observe: redisMetrics(metrics) }) });
  const bots = liveBots({
    config,
    logger,
    ...(redis && { observeKey: keyReporter(redis) }),
    ...(metrics && { observeReload: reloadMetrics(metrics) }),
  });
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const stores = openStores({ ...config, redis, logger, rate });
  const parts = {
    ...options,
    metrics,
    redis,
    ...stores,
    sessions: metrics ? countSessionOperations(stores.sessions, metrics) : stores.sessions,
    bots,
    open: openMessages(),
    lifecycle: createLifecycle(),
    onConnectionCut: metrics && (() => metrics.connectionsCut.inc()),
  };
  // Before the relay listens and until it has stopped, so that its start and its end can be seen.
  const metricsServer =
    metrics && worker === undefined
      ? await startMetricsServer({ registry: metrics.registry, port, host }).catch(unheard('METRICS_PORT'))
      : undefined;
  // Whether a relay is ready, one of its workers says for all: none may listen that would refuse what needs a session.
  if (worker !== undefined && redis) await redis.ready(REDIS_WAIT_MS);
  const server = await startServer(createApp(parts), { ...config, ...parts }).catch(unheard('PORT'));
  return {
    port: server.port,
    openMessages: parts.open.count,
    reload: bots.reload,
    metricsText: async () => metrics?.registry.metrics() ?? '',
    async close(signal) {
      await server.close(signal);
      bots.close();
      parts.sessions.close();
      await parts.streams.close();
      redis?.close();
      await metricsServer?.close();
    },
  };
}
