import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { SendOptions, Upstream, UpstreamRequest } from '../upstream/send.ts';

/** Judges an answer; `mask` hides secrets in texts of the service. */
export type Judge<V extends object> = (answer: UpstreamAnswer, mask: (text: string) => string) => Promise<V>;

export interface JudgedRequest extends SendOptions {
  readonly send: Upstream['send'];
  readonly request: UpstreamRequest;
  /** Hides secrets in texts of the service. */
  readonly mask: (text: string) => string;
  /** Called with undefined before the request is sent, and with the status of the answer. */
  readonly onStatus: (status: number | undefined) => void;
}

/**
 * Sends a request once and judges the answer. If the verdict is `stream`, the body of `answer` waits to be read.
 * @throws Problem of the upstream kinds, what `judge` or `onDelayed` rejects with, or the signal's reason
 */
export async function sendAndJudge<V extends object>(
  judge: Judge<V>,
  sending: JudgedRequest,
): Promise<V & { readonly answer: UpstreamAnswer }> {
  const { send, request, mask, onStatus, signal } = sending;
  onStatus(undefined);
  const answer = await send(request, sending);
  onStatus(answer.status);
  const close = () => answer.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    return { ...(await judge(answer, mask)), answer };
  } finally {
    signal.removeEventListener('abort', close);
    // The signal may have aborted before the listener was added.
    if (signal.aborted) close();
    // If the abort closed the answer, the verdict is wrong: throw the reason of the abort instead.
    signal.throwIfAborted();
  }
}
