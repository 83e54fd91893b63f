import type { RelayObserver } from './relay-observer.ts';
import type { Upstream } from './send.ts';

/** Wraps `send` for requests with the key of this fingerprint: the observer gets the result of each request. */
export function observedSend(
  send: Upstream['send'],
  keyFingerprint: string,
  observer: Pick<RelayObserver, 'upstreamAnswered' | 'upstreamFailed'>,
): Upstream['send'] {
  return async function observedSend(request, options) {
    try {
      const response = await send(request, options);
      observer.upstreamAnswered(keyFingerprint, response.status);
      return response;
    } catch (error) {
      observer.upstreamFailed(keyFingerprint, error);
      throw error;
    }
  };
}
