import { Problem } from '../errors.ts';
import type { Metrics } from './metrics.ts';

/** Keeps the metrics of streams and of the bot service. */
export function relayMetrics(metrics: Metrics) {
  const { openStreams, streamDuration, heartbeats, upstreamResponses } = metrics;
  return {
    /** The headers of a stream went down; what is returned is to be called when it is over. */
    streamStarted() {
      const startedAt = performance.now();
      openStreams.inc();
      return () => {
        openStreams.dec();
        streamDuration.observe((performance.now() - startedAt) / 1000);
      };
    },
    heartbeatSent: () => heartbeats.inc(),
    /** The bot service has answered a request that carried the key with this fingerprint. */
    upstreamAnswered(key: string, status: number) {
      upstreamResponses.inc({ key, outcome: outcomeOfStatus(status) });
    },
    /** A request with this key got no answer: `reason` is the Problem, or why the message was stopped. */
    upstreamFailed(key: string, reason: unknown) {
      upstreamResponses.inc({ key, outcome: outcomeOfFailure(reason) });
    },
  };
}

function outcomeOfStatus(status: number): string {
  if (status === 401 || status === 403) return 'key_rejected';
  if (status === 429) return 'rate_limited';
  return status >= 100 && status < 600 ? `${Math.floor(status / 100)}xx` : 'other';
}

/** Why there was no response; `given_up`: somebody else ended the message before. */
function outcomeOfFailure(reason: unknown): string {
  const code = reason instanceof Problem ? reason.code : undefined;
  if (code === 'upstream_unreachable') return 'unreachable';
  if (code === 'upstream_bad_response') return 'not_http';
  return code === 'upstream_timeout' ? 'timeout' : 'given_up';
}
