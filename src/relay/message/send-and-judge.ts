import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { SendOptions, Upstream, UpstreamRequest } from '../upstream/send.ts';
import { judgeResponse, type Verdict } from './judge-response.ts';

/** Judges an answer; `mask` hides secrets in texts of the service. */
export type Judge<V extends object> = (
  answer: UpstreamAnswer,
  mask: (text: string) => string,
) => V | Promise<V>;

export interface Sending extends SendOptions {
  readonly send: Upstream['send'];
  readonly request: UpstreamRequest;
  /** Hides secrets in texts of the service. */
  readonly mask: (text: string) => string;
  /** Called with undefined before the request is sent, and with the status of the answer. */
  readonly onStatus: (status: number | undefined) => void;
}

/**
 * Sends a request once and judges the answer. If the verdict is `stream`, the body of `answer` waits to be read.
 * @throws Problem of the upstream kinds, what `onDelayed` rejects with, or the signal's reason
 */
export function sendAndJudge(sending: Sending): Promise<Verdict & { readonly answer: UpstreamAnswer }> {
  return sendAndJudgeBy(judgeResponse, sending);
}

/** A verdict, and the answer that was judged. */
type Judged<V extends object> = V & { readonly answer: UpstreamAnswer };

/** The same, with another judge, whose errors it rejects with. */
export function sendAndJudgeBy<V extends object>(judge: Judge<V>, sending: Sending): Promise<Judged<V>> {
  const { send, request, mask, onStatus, signal } = sending;
  onStatus(undefined);
  return send(request, sending).then((answer) => {
    onStatus(answer.status);
    const verdict = judge(answer, mask);
    // Nothing has aborted an answer that was judged at once.
    const isJudged = !(verdict instanceof Promise) && !signal.aborted;
    return isJudged ? { ...verdict, answer } : judgedUnlessAborted(verdict, answer, signal);
  });
}

async function judgedUnlessAborted<V extends object>(
  verdict: V | Promise<V>,
  answer: UpstreamAnswer,
  signal: AbortSignal,
): Promise<Judged<V>> {
  const close = () => answer.close();
  signal.addEventListener('abort', close, { once: true });
  try {
    return { ...(await verdict), answer };
  } finally {
    signal.removeEventListener('abort', close);
    // The signal may have aborted before the listener was added.
    if (signal.aborted) close();
    // If the abort closed the answer, the verdict is wrong: throw the reason of the abort instead.
    signal.throwIfAborted();
  }
}
