import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import {
  declareConnectionMetrics,
  declareDependencyMetrics,
  declareJoinMetrics,
  declareOpenStreams,
  declareRequestMetrics,
  declareStreamMetrics,
} from './declare-metrics.ts';

/** Whether something that the relay needs is available. A check of another service must have a deadline. */
export type Check = () => Promise<boolean>;

/** What the metrics read at every scrape. */
export interface MetricsSources {
  /** The checks of `/readyz`. */
  readonly checks: Readonly<Record<string, Check>>;
  /** How many messages are not answered completely yet. */
  readonly openMessages: () => number;
  /** How many bytes the logs of runs take that can be joined. */
  readonly runBytes: () => number;
}

export type Metrics = ReturnType<typeof createMetrics>;

const SESSION_OPERATIONS = ['get', 'set', 'touch', 'destroy'] as const;
const STORE_OUTCOMES = ['ok', 'unavailable'];
const RELOAD_OUTCOMES = ['ok', 'failed'];
const SLOT_OUTCOMES = ['granted', 'refused', 'given_up'];
const RESUMPTION_OUTCOMES = [
  ...['resumed', 'unreachable', 'timeout', 'unavailable', 'rate_limited', 'key_rejected'],
  ...['over', 'new_run', 'ended_early', 'given_up'],
];
const UNHELD_REASONS = ['too_large', 'no_room'];
const INCOMPLETE_END_REASONS = ['held', 'no_end_event'];
const DIRECTIONS = ['up', 'down'];
const SUSPEND_OUTCOMES = ['suspended', 'over', 'rate_limited', 'failed'];
/** The results of a request to the bot service: a class of statuses, a special status, or why there is no response. */
const UPSTREAM_OUTCOMES = [
  ...['1xx', '2xx', '3xx', '4xx', '5xx', 'key_rejected', 'forbidden', 'rate_limited', 'other'],
  ...['unreachable', 'no_file', 'not_http', 'timeout', 'given_up'],
];

/** Adds the metrics of the process and of Node.js. To be called once a process: their listeners stay until it ends. */
export function addProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry });
}

/**
 * All metrics of an instance, in a new registry. Names follow Prometheus's rules: base units, `_total` for counters.
 * Values that a caller can choose never become labels. `keys` are the fingerprints of the bot service's keys that are
 * known at the start. `droppedLogLines` is called at every scrape.
 */
export function createMetrics(keys: readonly string[], droppedLogLines = () => 0) {
  const registry = new Registry();
  const metrics = {
    registry,
    buildInfo: new Gauge({
      name: 'bot_relay_build_info',
      help: 'Always 1; its labels say which build of the relay this is',
      labelNames: ['version', 'revision'],
      registers: [registry],
    }),
    ...declareRequestMetrics(registry),
    ...declareConnectionMetrics(registry),
    ...declareOpenStreams(registry),
    ...declareStreamMetrics(registry),
    ...declareJoinMetrics(registry),
    ...declareDependencyMetrics(registry),
    readAtScrape: declareGauges(registry),
  };
  countDroppedLogLines(registry, droppedLogLines);
  // Start all series at 0: `increase` misses the first event of a series that begins with it.
  for (const outcome of SLOT_OUTCOMES) metrics.slotWait.zero({ outcome });
  for (const outcome of RESUMPTION_OUTCOMES) metrics.resumptions.inc({ outcome }, 0);
  for (const reason of UNHELD_REASONS) metrics.unheldEvents.inc({ reason }, 0);
  for (const reason of INCOMPLETE_END_REASONS) metrics.incompleteEnds.inc({ reason }, 0);
  for (const outcome of SUSPEND_OUTCOMES) metrics.suspendsOnLeave.inc({ outcome }, 0);
  for (const direction of DIRECTIONS) metrics.transferredBytes.inc({ direction }, 0);
  for (const outcome of RELOAD_OUTCOMES) metrics.reloads.inc({ outcome }, 0);
  for (const outcome of STORE_OUTCOMES) {
    metrics.redisRun.zero({ outcome });
    for (const operation of SESSION_OPERATIONS) metrics.sessionOperations.inc({ operation, outcome }, 0);
  }
  /** Starts every outcome of each of these keys at 0; existing counts stay. */
  const zeroKeys = (fingerprints: readonly string[]) => {
    for (const key of fingerprints)
      for (const outcome of UPSTREAM_OUTCOMES) metrics.upstreamResponses.inc({ key, outcome }, 0);
  };
  zeroKeys(keys);
  return { ...metrics, zeroKeys };
}

/** Adds the metric of dropped log lines; `total` is read at every scrape. */
function countDroppedLogLines(registry: Registry, total: () => number): void {
  new Counter({
    name: 'bot_relay_log_lines_dropped_total',
    help: 'Log lines that were dropped because the reader of the log was too slow',
    registers: [registry],
    collect() {
      this.reset();
      this.inc(total());
    },
  });
}

/** Gauges that are read at every scrape. Call the returned function once with their sources. */
function declareGauges(registry: Registry): (sources: MetricsSources) => void {
  const registers = [registry];
  let sources: MetricsSources | undefined;
  new Gauge({
    name: 'bot_relay_ready',
    help: '1 for each check of /readyz that is ok, else 0',
    labelNames: ['check'],
    registers,
    async collect() {
      for (const [name, check] of Object.entries(sources?.checks ?? {}))
        this.set({ check: name }, (await check()) ? 1 : 0);
    },
  });
  new Gauge({
    name: 'bot_relay_open_messages',
    help: 'Messages whose answers have not ended: arriving, waiting for a slot or the bot service, streaming',
    registers,
    collect() {
      this.set(sources?.openMessages() ?? 0);
    },
  });
  new Gauge({
    name: 'bot_relay_run_log_bytes',
    help: 'Memory for the streams of runs that can be joined',
    registers,
    collect() {
      this.set(sources?.runBytes() ?? 0);
    },
  });
  return (from) => {
    sources = from;
  };
}
