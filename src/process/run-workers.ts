import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import { risksOf } from '../config/risks.ts';
import { isVariable } from '../config/variables.ts';
import { startMetricsServer } from '../watch/metrics-server.ts';
import { workersMetrics } from '../watch/workers-metrics.ts';
import { cannotListen } from './cannot-listen.ts';
import type { Log } from './log.ts';
import { shutdown } from './shutdown.ts';
import { signInOf } from './sign-in.ts';
import { reloadOnSignal, stopOnFault, stopOnSignal, stopWithParent } from './signals.ts';
import { startWorkers } from './workers.ts';

/** The command of a worker (see `main.ts`). */
const WORKER = 'worker';

export interface RunWorkersOptions {
  /** What the configuration was read from. */
  readonly environment: Environment;
  readonly log: Log;
  /** Whether `npm start` started this process: then it ends with its parent. */
  readonly underNpm: boolean;
}

/**
 * Has workers serve, and keeps them running; this process itself serves their metrics alone.
 * @throws ConfigError if the users file cannot be used
 */
export async function runWorkers(config: Config, options: RunWorkersOptions): Promise<void> {
  const { environment, log, underNpm } = options;
  const { logger, output } = log;
  // What is wrong for all workers is said once.
  await signInOf(config, logger);
  stopOnFault(logger);
  const { host, metricsPort: port, workers: count } = config;
  const registry = workersMetrics(async () => workers.metrics(), output.dropped);
  const metricsServer =
    port === undefined
      ? undefined
      : await startMetricsServer({ registry, port, host }).catch(cannotListen('METRICS_PORT'));
  const known = Object.fromEntries(Object.entries(environment).filter(([name]) => isVariable(name)));
  const onFailure = (code: number) => process.exit(code);
  const workers = startWorkers({ config, args: [WORKER], environment: known, logger, onFailure });
  reloadOnSignal(workers.reload);
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
  if (underNpm) stopWithParent(stopping);
}
