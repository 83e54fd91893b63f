import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Check } from './health.ts';
import { countDroppedLogLines } from './log-metrics.ts';

/** What the metrics read at every scrape. */
export interface MetricsSources {
  /** Those that `/readyz` asks. */
  readonly checks: Readonly<Record<string, Check>>;
  /** Messages that have not been answered to their end. */
  readonly openMessages: () => number;
}

export type Metrics = ReturnType<typeof createMetrics>;

/** How the bot service took a request: a class of statuses, one of two that mean more, or why there is none. */
const UPSTREAM_OUTCOMES = [
  ...['1xx', '2xx', '3xx', '4xx', '5xx', 'key_rejected', 'rate_limited', 'other'],
  ...['unreachable', 'not_http', 'timeout', 'given_up'],
];
const SESSION_OPERATIONS = ['get', 'set', 'touch', 'destroy'] as const;
const STORE_OUTCOMES = ['ok', 'unavailable'];
const RELOAD_OUTCOMES = ['ok', 'failed'];
const SLOT_OUTCOMES = ['granted', 'refused', 'given_up'];

const FIRST_BYTE_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60];
const STREAM_SECONDS = [0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 150, 180];
const SLOT_WAIT_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30];
/** The one metric that somebody can also tell of others. */
export const READY = {
  name: 'bot_relay_ready',
  help: '1 for each check of /readyz that holds, else 0',
  labelNames: ['check'],
} as const;

const REDIS_SECONDS = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/**
 * The one table of metrics, in a registry of its own, with those of the process and the runtime under the
 * names that every Node program has for them. Names follow Prometheus's rules: base units, `_total` for counters.
 * What a caller could choose never becomes a label.
 * `keys` are the fingerprints of the bot service's keys that are known from the start. With `worker`, the number of
 * one of several workers, all series carry it as a label. `droppedLogLines` is asked at every scrape.
 */
export function createMetrics(keys: readonly string[], worker?: number, droppedLogLines = () => 0) {
  const registry = new Registry();
  if (worker !== undefined) registry.setDefaultLabels({ worker: String(worker) });
  collectDefaultMetrics({ register: registry });
  const metrics = {
    registry,
    ...requestMetrics(registry),
    ...partMetrics(registry),
    readAtScrape: gauges(registry),
  };
  countDroppedLogLines(registry, droppedLogLines);
  // A series that first shows with its first event hides that event from `increase`.
  for (const outcome of SLOT_OUTCOMES) metrics.slotWait.zero({ outcome });
  for (const outcome of RELOAD_OUTCOMES) metrics.reloads.inc({ outcome }, 0);
  for (const outcome of STORE_OUTCOMES) {
    metrics.redisRun.zero({ outcome });
    for (const operation of SESSION_OPERATIONS) metrics.sessionOperations.inc({ operation, outcome }, 0);
  }
  zeroKeys(metrics, keys);
  return metrics;
}

/** Has every outcome of each of `keys` start at 0; what was counted of them stays. */
export function zeroKeys({ upstreamResponses }: Pick<Metrics, 'upstreamResponses'>, keys: readonly string[]) {
  for (const key of keys) {
    for (const outcome of UPSTREAM_OUTCOMES) upstreamResponses.inc({ key, outcome }, 0);
  }
}

/** What is known of a request when it is over, and of a stream. */
function requestMetrics(registry: Registry) {
  const registers = [registry];
  return {
    requests: new Counter({
      name: 'bot_relay_requests_total',
      help: 'Requests that are over, by route pattern, method, HTTP status and code; without probes',
      labelNames: ['route', 'method', 'status', 'code'],
      registers,
    }),
    firstByte: new Histogram({
      name: 'bot_relay_time_to_first_byte_seconds',
      help: 'From the arrival of a message to the first byte of its answer, with the wait for its slot',
      buckets: FIRST_BYTE_SECONDS,
      registers,
    }),
    slotWait: new Histogram({
      name: 'bot_relay_slot_wait_seconds',
      help: 'What messages waited for their slot, by what came of it',
      labelNames: ['outcome'],
      buckets: SLOT_WAIT_SECONDS,
      registers,
    }),
    openStreams: new Gauge({
      name: 'bot_relay_open_streams',
      help: 'Streams under way from the bot service to a client',
      registers,
    }),
    streamDuration: new Histogram({
      name: 'bot_relay_stream_duration_seconds',
      help: 'From the headers of a stream to its end, however it ended',
      buckets: STREAM_SECONDS,
      registers,
    }),
    heartbeats: new Counter({
      name: 'bot_relay_heartbeats_total',
      help: 'Heartbeats that were written into silent streams',
      registers,
    }),
    connectionsCut: new Counter({
      name: 'bot_relay_connections_cut_total',
      help: 'Connections of clients that were cut because more than 4 requests, or more than 64 KiB of a body, waited on them',
      registers,
    }),
  };
}

/** What those did that the relay depends on: the bot service, the session store, Redis. */
function partMetrics(registry: Registry) {
  const registers = [registry];
  return {
    upstreamResponses: new Counter({
      name: 'bot_relay_upstream_responses_total',
      help: 'Requests to the bot service, by the fingerprint of the key they carried and how they were taken',
      labelNames: ['key', 'outcome'],
      registers,
    }),
    sessionOperations: new Counter({
      name: 'bot_relay_session_operations_total',
      help: 'Operations of the session store',
      labelNames: ['operation', 'outcome'],
      registers,
    }),
    reloads: new Counter({
      name: 'bot_relay_reloads_total',
      help: 'Reloads of the files of keys and bots because they had changed or somebody asked, by whether they could be used',
      labelNames: ['outcome'],
      registers,
    }),
    redisRun: new Histogram({
      name: 'bot_relay_redis_run_duration_seconds',
      help: 'What runs of commands on Redis took',
      labelNames: ['outcome'],
      buckets: REDIS_SECONDS,
      registers,
    }),
  };
}

/** Gauges that are read at every scrape, once the returned function has said from what. */
function gauges(registry: Registry): (sources: MetricsSources) => void {
  const registers = [registry];
  let sources: MetricsSources = { checks: {}, openMessages: () => 0 };
  new Gauge({
    ...READY,
    registers,
    async collect() {
      for (const [check, holds] of Object.entries(sources.checks))
        this.set({ check }, (await holds()) ? 1 : 0);
    },
  });
  new Gauge({
    name: 'bot_relay_open_messages',
    help: 'Messages that are not answered to their end: arriving, waiting for a slot or the bot service, streaming',
    registers,
    collect() {
      this.set(sources.openMessages());
    },
  });
  return (from) => {
    sources = from;
  };
}
