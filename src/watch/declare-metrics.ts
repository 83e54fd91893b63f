import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

const FIRST_BYTE_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60];
const STREAM_SECONDS = [0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 150, 180];
const SLOT_WAIT_SECONDS = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30];
const REDIS_SECONDS = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/** The metrics of requests. */
export function declareRequestMetrics(registry: Registry) {
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
export function declareOpenStreams(registry: Registry) {
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
export function declareStreamMetrics(registry: Registry) {
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
export function declareDependencyMetrics(registry: Registry) {
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

/** The metrics of the connections of clients. */
export function declareConnectionMetrics(registry: Registry) {
  const registers = [registry];
  const connectionsCut = new Counter({
    name: 'bot_relay_connections_cut_total',
    help: 'Connections of clients that were cut because more than 4 requests, or more than 64 KiB of a body, waited on them',
    registers,
  });
  const connectionsRefused = new Counter({
    name: 'bot_relay_connections_refused_total',
    help: 'Connections of clients that were closed without an answer, by who had too many: their address or the instance',
    labelNames: ['reason'],
    registers,
  });
  for (const reason of ['address', 'instance']) connectionsRefused.inc({ reason }, 0);
  return { connectionsCut, connectionsRefused };
}

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
