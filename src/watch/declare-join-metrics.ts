import { Counter, Gauge, type Registry } from 'prom-client';

const JOIN_OUTCOMES = ['live', 'ended', 'resumed'];
const LEFT_OUTCOMES = ['returned', 'expired', 'ended'];
const MOVE_OUTCOMES = ['taken_over', 'handed_over', 'ended', 'lost'];

/** The metrics of runs that are joined, or go on without a client. */
export function declareJoinMetrics(registry: Registry) {
  const registers = [registry];
  const metrics = {
    runsJoined: new Counter({
      name: 'bot_relay_runs_joined_total',
      help: 'Requests that got the stream of a run that another request had begun, by how they got it',
      labelNames: ['outcome'],
      registers,
    }),
    runsLeft: new Counter({
      name: 'bot_relay_runs_left_total',
      help: 'Runs that went on without a client, by what became of them',
      labelNames: ['outcome'],
      registers,
    }),
    runsMoved: new Counter({
      name: 'bot_relay_runs_moved_total',
      help: 'Runs that this instance has taken over or ended for a lost one, has handed over, or has lost',
      labelNames: ['outcome'],
      registers,
    }),
  };
  for (const outcome of JOIN_OUTCOMES) metrics.runsJoined.inc({ outcome }, 0);
  for (const outcome of LEFT_OUTCOMES) metrics.runsLeft.inc({ outcome }, 0);
  for (const outcome of MOVE_OUTCOMES) metrics.runsMoved.inc({ outcome }, 0);
  return metrics;
}

/** What the gauges of runs read at every scrape. */
export interface RunSources {
  /** How many bytes the logs of runs take that can be joined. */
  readonly runBytes: () => number;
  /** How many bytes the streams of all instances take in Redis; rejects while that does not answer. */
  readonly storedRunBytes: () => Promise<number>;
}

/** What runs that can be joined take. Both are read at every scrape; `sources` is undefined before all parts are open. */
export function declareRunGauges(registry: Registry, sources: () => RunSources | undefined): void {
  const registers = [registry];
  new Gauge({
    name: 'bot_relay_run_log_bytes',
    help: 'Memory for the streams of runs that can be joined',
    registers,
    collect() {
      this.set(sources()?.runBytes() ?? 0);
    },
  });
  new Gauge({
    name: 'bot_relay_run_stored_bytes',
    help: 'What the streams of runs of all instances take in Redis, which is the same at each instance',
    registers,
    async collect() {
      // An old value would look like a true one.
      this.set(
        (await sources()
          ?.storedRunBytes()
          .catch(() => Number.NaN)) ?? 0,
      );
    },
  });
}
