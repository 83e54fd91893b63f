import type { RelayObserver } from './relay-observer.ts';
import type { Upstream } from './send.ts';

/** `send`, for requests that carry the key with this fingerprint; the observer hears how each was taken. */
export function observedSend(
  send: Upstream['send'],
  keyFingerprint: string,
  observer: RelayObserver,
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
