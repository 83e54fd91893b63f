import type { RelayObserver } from './relay-observer.ts';
import type { SendUpstream } from './send-upstream.ts';

/** `send`, for requests that carry the key with this fingerprint; the observer hears how each was taken. */
export function observedSend(
  send: SendUpstream,
  keyFingerprint: string,
  observer: RelayObserver,
): SendUpstream {
  return async function observedSend(request, options) {
    try {
      const response = await send(request, options);
      observer.upstreamAnswered(keyFingerprint, response.statusCode as number);
      return response;
    } catch (error) {
      observer.upstreamFailed(keyFingerprint, error);
      throw error;
    }
  };
}
