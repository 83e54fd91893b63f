import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { SendOptions, Upstream, UpstreamRequest } from '../upstream/send.ts';
import { judgeResponse, type Verdict } from './judge-response.ts';

export interface Sending extends SendOptions {
  readonly send: Upstream['send'];
  readonly request: UpstreamRequest;
  /** Hides secrets in what the service says. */
  readonly mask: (text: string) => string;
  /** Told the status of the answer; undefined as long as there is none, whatever an earlier attempt was answered. */
  readonly onStatus: (status: number | undefined) => void;
}

/**
 * Sends a request once and judges the answer. `answer` is a stream that waits to be read if the verdict says so.
 * @throws Problem of the upstream kinds, what `mayLeave` rejects with, or the signal's reason
 */
export async function sendAndJudge(sending: Sending): Promise<Verdict & { readonly answer: UpstreamAnswer }> {
  const { send, request, mask, onStatus, ...options } = sending;
  const { signal } = options;
  onStatus(undefined);
  const answer = await send(request, options);
  onStatus(answer.status);
  const close = () => answer.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    return { ...(await judgeResponse(answer, mask)), answer };
  } finally {
    signal.removeEventListener('abort', close);
    // An answer that was closed on abort reads as a refusal without a body; the abort is the reason.
    signal.throwIfAborted();
  }
}
