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
   * The message is being sent: both deadlines start again. `leftMs` is what is left for the execution, by default all;
   * infinity sets it no deadline.
   */
  start(leftMs?: number): void;
  /** The service has begun to answer with a stream: only the deadline of the execution stays. */
  answered(): void;
  /** How long the execution may still take, in ms; infinity if nothing ends it. */
  leftMs(): number;
  /** The sending or the stream is over: both deadlines end. */
  clear(): void;
}

export const TOO_LONG = new Problem(
  'deadline_exceeded',
  'The answer took longer than the bot service is allowed to take.',
);
export const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');

/** Makes deadlines that abort `stop` with Problem `upstream_timeout` or `deadline_exceeded`. */
export function deadlines(
  stop: AbortController,
  { responseTimeoutMs, maxExecutionMs }: TimeLimits,
): Deadlines {
  let execution: NodeJS.Timeout | undefined;
  let response: NodeJS.Timeout | undefined;
  let until = Number.POSITIVE_INFINITY;
  const answered = () => clearTimeout(response);
  const clear = () => {
    clearTimeout(execution);
    answered();
  };
  return {
    start(leftMs = maxExecutionMs) {
      clear();
      until = performance.now() + leftMs;
      if (leftMs < Number.POSITIVE_INFINITY) execution = setTimeout(() => stop.abort(TOO_LONG), leftMs);
      response = setTimeout(() => stop.abort(NO_ANSWER), responseTimeoutMs);
    },
    answered,
    leftMs: () => until - performance.now(),
    clear,
  };
}
