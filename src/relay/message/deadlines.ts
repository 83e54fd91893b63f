import { Problem } from '../../errors.ts';

/** How long the bot service may take, in ms. */
export interface TimeLimits {
  /** To the headers of its response. */
  readonly responseTimeoutMs: number;
  /** For the whole execution, from the moment the request is sent. */
  readonly maxExecutionMs: number;
}

/** The deadlines of one message, which abort it with a Problem. */
export interface Deadlines {
  /** An attempt begins: both deadlines start anew. */
  start(): void;
  /** The service has begun to answer with a stream, which may take until the deadline of the execution. */
  answered(): void;
  /** The attempt or the stream is over. */
  clear(): void;
}

const TOO_LONG = new Problem('deadline_exceeded', 'The answer took longer than the bot service may take.');
const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');

/** Deadlines that abort `stop` with Problem `upstream_timeout` or `deadline_exceeded`. */
export function deadlines(
  stop: AbortController,
  { responseTimeoutMs, maxExecutionMs }: TimeLimits,
): Deadlines {
  let execution: NodeJS.Timeout | undefined;
  let response: NodeJS.Timeout | undefined;
  const answered = () => clearTimeout(response);
  const clear = () => {
    clearTimeout(execution);
    answered();
  };
  return {
    start() {
      clear();
      execution = setTimeout(() => stop.abort(TOO_LONG), maxExecutionMs);
      response = setTimeout(() => stop.abort(NO_ANSWER), responseTimeoutMs);
    },
    answered,
    clear,
  };
}
