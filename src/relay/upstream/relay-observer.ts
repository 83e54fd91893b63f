import type { UpstreamAnswer } from './answer-arrival.ts';
import type { Upstream } from './send.ts';

/** How one attempt to resume a stream at the bot service ended. */
export type ResumptionOutcome =
  /** The stream goes on. */
  | 'resumed'
  /** No connection, or it broke before the answer. */
  | 'unreachable'
  /** No answer in `UPSTREAM_RESPONSE_TIMEOUT_MS`. */
  | 'timeout'
  /** 502, 503, 504. */
  | 'unavailable'
  /** 429. */
  | 'rate_limited'
  /** 401 or 403. */
  | 'key_rejected'
  /** 204 or any other answer: there is nothing to resume. */
  | 'over'
  /** The service has begun a new run. */
  | 'new_run'
  /** The resumed stream ended before its run did. */
  | 'ended_early'
  /** The client left, or the message ended otherwise. */
  | 'given_up';

/** What came of the request to suspend a run whose clients have left. */
export type SuspendOutcome =
  /** 2xx. */
  | 'suspended'
  /** 404: the run was over. */
  | 'over'
  /** The budget of suspends had no slot in time, or the service answered 429. */
  | 'rate_limited'
  /** Any other answer, or none. */
  | 'failed';

/** Gets what happens between the relay and the bot service, for the metrics; never single chunks. */
export interface RelayObserver {
  /** The headers of a stream were sent to the client. Returns the function to call when the stream ends. */
  streamStarted(): () => void;
  /** As `streamStarted`, for a live stream, which has a count of its own. */
  liveStreamStarted(): () => void;
  /** A heartbeat was written into a stream. */
  heartbeatSent(): void;
  /** The bot service has answered a request with this key. */
  upstreamAnswered(keyFingerprint: string, status: number): void;
  /** A request with this key got no answer: `reason` is the Problem, or why the message was stopped. */
  upstreamFailed(keyFingerprint: string, reason: unknown): void;
  /** An attempt to resume a stream is over. */
  resumption(outcome: ResumptionOutcome): void;
  /** An event is passed on before it is whole: it is too large, or the instance holds too much already. */
  unheldEvent(why: 'too_large' | 'no_room'): void;
  /** A stream was taken as complete, though it ended inside an event (`held`) or a run (`no_end_event`). */
  incompleteEnd(how: 'held' | 'no_end_event'): void;
  /** The service was asked to suspend a run whose client has left. */
  suspendOnLeave(outcome: SuspendOutcome): void;
  /** A file was carried to the bot service (`up`) or to a client (`down`), as far as `bytes`. Called when that ends. */
  transferred(direction: 'up' | 'down', bytes: number): void;
}

/** Ignores everything. */
export const UNOBSERVED: RelayObserver = {
  streamStarted: () => () => {},
  liveStreamStarted: () => () => {},
  heartbeatSent: () => {},
  upstreamAnswered: () => {},
  upstreamFailed: () => {},
  resumption: () => {},
  unheldEvent: () => {},
  incompleteEnd: () => {},
  suspendOnLeave: () => {},
  transferred: () => {},
};

/** Wraps `send` for requests with the key of this fingerprint: the observer gets the result of each request. */
export function observedSend(
  send: Upstream['send'],
  keyFingerprint: string,
  observer: Pick<RelayObserver, 'upstreamAnswered' | 'upstreamFailed'>,
): Upstream['send'] {
  const answered = (response: UpstreamAnswer) => {
    observer.upstreamAnswered(keyFingerprint, response.status);
    return response;
  };
  const failed = (error: unknown) => {
    observer.upstreamFailed(keyFingerprint, error);
    throw error;
  };
  return (request, options) => send(request, options).then(answered, failed);
}
