import type { Metrics } from './metrics.ts';

/** Makes the observer that records the metrics of runs that are joined. */
export function joinMetrics({
  runsJoined,
  runsLeft,
  runsMoved,
}: Pick<Metrics, 'runsJoined' | 'runsLeft' | 'runsMoved'>) {
  return {
    /** A request has joined a run. */
    runJoined: (outcome: string) => runsJoined.inc({ outcome }),
    /** A run that all its clients had left has got one, was given up, or has ended. */
    runLeft: (outcome: string) => runsLeft.inc({ outcome }),
    /** A run has come to another instance, or has ended for want of one. */
    runMoved: (outcome: string) => runsMoved.inc({ outcome }),
  };
}
