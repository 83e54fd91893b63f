import { Problem } from '../errors.ts';
import type { RelayObserver } from '../relay/message/relay-observer.ts';
import type { Metrics } from './metrics.ts';

/** Keeps the metrics of streams and of the bot service. */
export function relayMetrics(metrics: Metrics): RelayObserver {
  const { openStreams, streamDuration, heartbeats, upstreamResponses } = metrics;
  return {
    streamStarted() {
      const startedAt = performance.now();
      openStreams.inc();
      return () => {
        openStreams.dec();
        streamDuration.observe((performance.now() - startedAt) / 1000);
      };
    },
    heartbeatSent: () => heartbeats.inc(),
    upstreamAnswered(key, status) {
      upstreamResponses.inc({ key, outcome: outcomeOfStatus(status) });
    },
    upstreamFailed(key, reason) {
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
