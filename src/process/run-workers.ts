import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import { isVariable } from '../config/variables.ts';
import type { MetricsServer } from '../watch/metrics-server.ts';
import type { workersMetrics } from '../watch/workers-metrics.ts';
import { cannotListen } from './cannot-listen.ts';
import type { Log } from './log.ts';
import { shutdown } from './shutdown.ts';
import { signInOf } from './sign-in.ts';
import { reloadOnSignal, stopOnFault, stopOnSignal, stopWithParent } from './signals.ts';
import { trySpoolFolder } from './spool-folder.ts';
import { startWorkers } from './workers.ts';

/** The command that starts a worker (see `main.ts`). */
const WORKER = 'worker';

export interface RunWorkersOptions {
  /** From which the configuration was read. */
  readonly environment: Environment;
  readonly log: Log;
  /** Whether `npm start` started this process. If so, it stops when its parent ends. */
  readonly underNpm: boolean;
}

/**
 * Starts workers that serve, and keeps them running. This process itself only serves their metrics.
 * @throws ConfigError if the users file, or the folder of uploads, cannot be used
 */
export async function runWorkers(config: Config, options: RunWorkersOptions): Promise<void> {
  const { environment, log, underNpm } = options;
  const { logger, output } = log;
  // Done here too, so that an error that all workers share is printed once.
  await signInOf(config, logger);
  await trySpoolFolder(config);
  stopOnFault(logger);
  const metricsServer = await serveMetrics(config, async () => workers.metrics(), output.dropped);
  const known = Object.fromEntries(Object.entries(environment).filter(([name]) => isVariable(name)));
  const onFailure = (code: number) => process.exit(code);
  const workers = startWorkers({ config, args: [WORKER], environment: known, logger, onFailure });
  reloadOnSignal(workers.reload);
  const { workers: count } = config;
  logger.info({ workers: count }, 'starting workers');
  for (const risk of risksOf(config)) logger.warn(risk);
  const stopping = shutdown({
    logger,
    logFields: () => ({ workers: count }),
    close: (signal) => workers.stop(signal).then(() => metricsServer?.close()),
    exit(code) {
      workers.kill();
      process.exit(code);
    },
  });
  stopOnSignal(stopping);
  if (underNpm) stopWithParent(stopping);
}

/** Serves the metrics of all workers, if METRICS_PORT is set. What only they need is loaded only then. */
async function serveMetrics(
  { metricsPort: port, host }: Config,
  ofWorkers: Parameters<typeof workersMetrics>[0],
  droppedLogLines: () => number,
): Promise<MetricsServer | undefined> {
  if (port === undefined) return undefined;
  const { startMetricsServer } = await import('../watch/metrics-server.ts');
  const metrics = await import('../watch/workers-metrics.ts');
  const registry = metrics.workersMetrics(ofWorkers, droppedLogLines);
  return startMetricsServer({ registry, port, host }).catch(cannotListen('METRICS_PORT'));
}
