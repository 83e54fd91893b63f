import { type RefusedBy, reportRefused } from '../arrive/connection-bounds.ts';
import type { Logger } from '../logger.ts';
import type { GraceOutcome, Run } from '../runs/run.ts';
import type { Redis } from '../storage/redis.ts';
import { type KeyUse, keyReporter } from '../watch/key-reports.ts';
import type { Metrics } from '../watch/metrics.ts';
import { keyMetrics, reloadMetrics } from '../watch/relay-metrics.ts';

export interface ObserversOptions {
  readonly logger: Logger;
  readonly metrics: Metrics | undefined;
  readonly redis: Redis | undefined;
}

/** What the parts of an instance report, to the log, to the metrics if they are served, and to Redis if it is used. */
export function observersOf({ logger, metrics, redis }: ObserversOptions) {
  const countKey = metrics && keyMetrics(metrics);
  const reportKey = redis && keyReporter(redis);
  return {
    /** The bot service has accepted or refused a key. */
    key(use: KeyUse): void {
      countKey?.(use);
      reportKey?.(use);
    },
    /** The files of keys and bots were read again. */
    reload: metrics && reloadMetrics(metrics),
    connectionRefused: reportRefused(logger, (reason: RefusedBy) => {
      metrics?.connectionsRefused.inc({ reason });
    }),
    /** A connection was cut because of what waited on it. */
    connectionCut: () => metrics?.connectionsCut.inc(),
    /** The time is over for which a run has gone on without a client. */
    runInGrace({ requestId }: Run, outcome: GraceOutcome): void {
      metrics?.runsLeft.inc({ outcome });
      logger.info({ requestId, outcome }, 'run without a client');
    },
  };
}
