import { Counter, Gauge, type Registry } from 'prom-client';

const JOIN_OUTCOMES = ['live', 'ended', 'resumed'];
const LEFT_OUTCOMES = ['returned', 'expired', 'ended'];

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
  };
  for (const outcome of JOIN_OUTCOMES) metrics.runsJoined.inc({ outcome }, 0);
  for (const outcome of LEFT_OUTCOMES) metrics.runsLeft.inc({ outcome }, 0);
  return metrics;
}

/** What the gauges of runs read at every scrape. */
export interface RunSources {
  /** How many bytes the logs of runs take that can be joined. */
  readonly runBytes: () => number;
}

/** What runs take. It is read at every scrape; `sources` is undefined before all parts are open. */
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
}
