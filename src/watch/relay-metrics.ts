import { Problem } from '../errors.ts';
import type { KeyUse } from './key-reports.ts';
import type { Metrics } from './metrics.ts';

/** Makes the observer that records the metrics of streams and of requests to the bot service. */
export function relayMetrics(metrics: Metrics) {
  const { openStreams, streamDuration, heartbeats, upstreamResponses } = metrics;
  const { openLiveStreams, resumptions, unheldEvents, incompleteEnds, suspendsOnLeave, transferredBytes } =
    metrics;
  return {
    /** The headers of a stream were sent to the client. Returns the function to call when the stream ends. */
    streamStarted() {
      const startedAt = performance.now();
      openStreams.inc();
      return () => {
        openStreams.dec();
        streamDuration.observe((performance.now() - startedAt) / 1000);
      };
    },
    /** As `streamStarted`, for a live stream. */
    liveStreamStarted() {
      openLiveStreams.inc();
      return () => openLiveStreams.dec();
    },
    heartbeatSent: () => heartbeats.inc(),
    /** The bot service has answered a request with the key of this fingerprint. 401 counts as its key's refusal. */
    upstreamAnswered(key: string, status: number) {
      if (status !== 401) upstreamResponses.inc({ key, outcome: outcomeOfStatus(status) });
    },
    /** A request with this key got no answer: `reason` is the Problem, or why the message was stopped. */
    upstreamFailed(key: string, reason: unknown) {
      upstreamResponses.inc({ key, outcome: outcomeOfFailure(reason) });
    },
    /** An attempt to resume a stream at the bot service is over. */
    resumption: (outcome: string) => resumptions.inc({ outcome }),
    /** An event is passed on before it is whole. */
    unheldEvent: (reason: string) => unheldEvents.inc({ reason }),
    /** A stream was taken as complete, though it ended inside an event or a run. */
    incompleteEnd: (reason: string) => incompleteEnds.inc({ reason }),
    /** The service was asked to suspend a run whose client has left. */
    suspendOnLeave: (outcome: string) => suspendsOnLeave.inc({ outcome }),
    /** A file was carried, whole or in part. */
    transferred: (direction: string, bytes: number) => transferredBytes.inc({ direction }, bytes),
  };
}

/** Makes the function that counts the keys which the bot service has refused. */
export function keyMetrics({ upstreamResponses }: Metrics): (use: KeyUse) => void {
  return ({ fingerprint: key, outcome }) => {
    if (outcome === 'refused') upstreamResponses.inc({ key, outcome: 'key_rejected' });
  };
}

function outcomeOfStatus(status: number): string {
  if (status === 403) return 'forbidden';
  if (status === 429) return 'rate_limited';
  return status >= 100 && status < 600 ? `${Math.floor(status / 100)}xx` : 'other';
}

/** Why there was no response; `given_up` if the message ended for another reason, such as a client that left. */
function outcomeOfFailure(reason: unknown): string {
  const code = reason instanceof Problem ? reason.code : undefined;
  if (code === 'upstream_unreachable') return 'unreachable';
  if (code === 'busy') return 'no_file';
  if (code === 'upstream_bad_response') return 'not_http';
  return code === 'upstream_timeout' ? 'timeout' : 'given_up';
}

/** Makes the function that records a run of commands on Redis: how long it took, in ms, and whether it succeeded. */
export function redisMetrics({ redisRun }: Metrics): (ms: number, ok: boolean) => void {
  // Labelled once, since a message asks Redis several times.
  const [succeeded, failed] = [
    redisRun.labels({ outcome: 'ok' }),
    redisRun.labels({ outcome: 'unavailable' }),
  ];
  return (ms, ok) => (ok ? succeeded : failed).observe(ms / 1000);
}

/**
 * Makes the function that counts a reload of the files of keys and bots, by whether the files could be used, and says
 * whether they can be used now. `keys` are the fingerprints of all keys after the reload, so that the series of a new
 * key start before its first use.
 */
export function reloadMetrics(metrics: Metrics): (ok: boolean, keys: readonly string[]) => void {
  // At the start they could be used: without that, the relay does not start.
  metrics.configurationValid.set(1);
  return (ok, keys) => {
    metrics.configurationValid.set(ok ? 1 : 0);
    metrics.reloads.inc({ outcome: ok ? 'ok' : 'failed' });
    metrics.zeroKeys(keys);
  };
}
