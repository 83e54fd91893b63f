import type { UpstreamAnswer } from './answer-arrival.ts';
import type { RelayObserver } from './relay-observer.ts';
import type { Upstream } from './send.ts';

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
