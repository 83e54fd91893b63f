import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { declareConnectionMetrics } from './declare-connection-metrics.ts';
import { declareJoinMetrics, declareRunGauges, type RunSources } from './declare-join-metrics.ts';
import type { Check } from './health.ts';
import { zeroKeys } from './zero-keys.ts';

/** What the metrics read at every scrape. */
export interface MetricsSources extends RunSources {
  /** The checks of `/readyz`. */
  readonly checks: Readonly<Record<string, Check>>;
  /** How many messages are not answered completely yet. */
  readonly openMessages: () => number;
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

const FIRST_BYTE_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60];
const STREAM_SECONDS = [0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 150, 180];
const SLOT_WAIT_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30];
const REDIS_SECONDS = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/**
 * All metrics, in a new registry, including the default metrics of the process and of Node.js. Names follow Prometheus's
 * rules: base units, `_total` for counters. Values that a caller can choose never become labels.
 * `keys` are the fingerprints of the bot service's keys that are known at the start. `droppedLogLines` is
 * called at every scrape.
 */
export function createMetrics(keys: readonly string[], droppedLogLines = () => 0) {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
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
  zeroKeys(metrics, keys);
  return metrics;
}

/** The metrics of requests. */
function declareRequestMetrics(registry: Registry) {
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
      help: 'From the arrival of a message to the first byte of its answer, including the wait for its slot',
      buckets: FIRST_BYTE_SECONDS,
      registers,
    }),
    slotWait: new Histogram({
      name: 'bot_relay_slot_wait_seconds',
      help: 'How long messages waited for their slot, by the result',
      labelNames: ['outcome'],
      buckets: SLOT_WAIT_SECONDS,
      registers,
    }),
    transferredBytes: new Counter({
      name: 'bot_relay_transferred_bytes_total',
      help: 'Bytes of files that were carried up to the bot service or down to clients',
      labelNames: ['direction'],
      registers,
    }),
  };
}

/** How many streams are open. */
function declareOpenStreams(registry: Registry) {
  const registers = [registry];
  return {
    openStreams: new Gauge({
      name: 'bot_relay_open_streams',
      help: 'Open streams from the bot service to a client',
      registers,
    }),
    openLiveStreams: new Gauge({
      name: 'bot_relay_open_live_streams',
      help: 'Open streams that show a conversation live, without a message of their own',
      registers,
    }),
  };
}

/** The metrics of the streams that are carried. */
function declareStreamMetrics(registry: Registry) {
  const registers = [registry];
  return {
    streamDuration: new Histogram({
      name: 'bot_relay_stream_duration_seconds',
      help: 'Duration of streams, from their headers to their end',
      buckets: STREAM_SECONDS,
      registers,
    }),
    heartbeats: new Counter({
      name: 'bot_relay_heartbeats_total',
      help: 'Heartbeats that were written into silent streams',
      registers,
    }),
    resumptions: new Counter({
      name: 'bot_relay_resumptions_total',
      help: 'Attempts to resume broken streams at the bot service, by their result',
      labelNames: ['outcome'],
      registers,
    }),
    unheldEvents: new Counter({
      name: 'bot_relay_unheld_events_total',
      help: 'Events that were passed on before they were whole, by the reason',
      labelNames: ['reason'],
      registers,
    }),
    incompleteEnds: new Counter({
      name: 'bot_relay_incomplete_ends_total',
      help: 'Streams that were taken as complete though they ended inside an event, or inside a run with END_EVENTS=off',
      labelNames: ['reason'],
      registers,
    }),
    suspendsOnLeave: new Counter({
      name: 'bot_relay_suspends_on_leave_total',
      help: 'Requests to suspend a run whose client has left, by their result',
      labelNames: ['outcome'],
      registers,
    }),
  };
}

/** The metrics of what the relay depends on: the bot service, the session store, Redis. */
function declareDependencyMetrics(registry: Registry) {
  const registers = [registry];
  return {
    upstreamResponses: new Counter({
      name: 'bot_relay_upstream_responses_total',
      help: 'Requests to the bot service, by the fingerprint of their key and their result',
      labelNames: ['key', 'outcome'],
      registers,
    }),
    sessionOperations: new Counter({
      name: 'bot_relay_session_operations_total',
      help: 'Operations of the session store',
      labelNames: ['operation', 'outcome'],
      registers,
    }),
    sessionsLost: new Counter({
      name: 'bot_relay_sessions_lost_total',
      help: 'Sessions that the session store has lost: they were read before, had time left, and were not removed',
      registers,
    }),
    reloads: new Counter({
      name: 'bot_relay_reloads_total',
      help: 'Reloads of the files of keys and bots, after a change or on request, by whether the files could be used',
      labelNames: ['outcome'],
      registers,
    }),
    configurationValid: new Gauge({
      name: 'bot_relay_configuration_valid',
      help: '1 if the files of keys and bots could be used when they were last read, else 0',
      registers,
    }),
    redisRun: new Histogram({
      name: 'bot_relay_redis_run_duration_seconds',
      help: 'How long runs of commands on Redis took',
      labelNames: ['outcome'],
      buckets: REDIS_SECONDS,
      registers,
    }),
  };
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
  declareRunGauges(registry, () => sources);
  return (from) => {
    sources = from;
  };
}
