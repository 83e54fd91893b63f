import { Problem } from '../../errors.ts';

/** How long the bot service may take from the moment the request is sent, in ms. */
export interface TimeLimits {
  /** Until the headers of its response. */
  readonly responseTimeoutMs: number;
  /** Until the end of the whole execution. */
  readonly maxExecutionMs: number;
}

/** The deadlines of one message, which abort it with a Problem. */
export interface Deadlines {
  /**
   * The message is being sent: both deadlines start again. `executionMs` replaces the limit of the execution; infinity
   * sets it no deadline.
   */
  start(executionMs?: number): void;
  /** The service has begun to answer with a stream: only the deadline of the execution stays. */
  answered(): void;
  /** The sending or the stream is over: both deadlines end. */
  clear(): void;
}

export const TOO_LONG = new Problem(
  'deadline_exceeded',
  'The answer took longer than the bot service is allowed to take.',
);
export const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');

/**
 * Makes deadlines that abort `stop` with Problem `upstream_timeout` or `deadline_exceeded`. They share one timer, since
 * nearly every answer begins before it fires.
 */
export function deadlines(
  stop: AbortController,
  { responseTimeoutMs, maxExecutionMs }: TimeLimits,
): Deadlines {
  let timer: NodeJS.Timeout | undefined;
  let isAnswered = false;
  let until = Number.POSITIVE_INFINITY;
  let answerUntil = Number.POSITIVE_INFINITY;

  /**
   * Called by the timer, which may be a little early (Node.js counts whole ms), or for the deadline of an answer that
   * has begun.
   */
  function check(): void {
    const now = performance.now();
    const next = isAnswered ? until : Math.min(until, answerUntil);
    if (now >= until) stop.abort(TOO_LONG);
    else if (now >= next) stop.abort(NO_ANSWER);
    else if (next < Number.POSITIVE_INFINITY) timer = setTimeout(check, Math.ceil(next - now));
  }

  return {
    start(executionMs = maxExecutionMs) {
      const now = performance.now();
      clearTimeout(timer);
      isAnswered = false;
      until = now + executionMs;
      answerUntil = now + responseTimeoutMs;
      timer = setTimeout(check, Math.min(executionMs, responseTimeoutMs));
    },
    answered() {
      isAnswered = true;
    },
    clear: () => clearTimeout(timer),
  };
}
