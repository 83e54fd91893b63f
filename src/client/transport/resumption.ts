import { RelayError } from './relay-error.ts';

/** How many times in a row a stream is resumed without a new event id before it fails. */
const MAX_IDLE_RESUMES = 5;
/** How many times a stream is resumed in all, since a service could give new ids to the same events for ever. */
const MAX_RESUMES = 50;
/** The pause before a resumption, unless `retry:` sets another. It doubles with each resumption without a new id. */
const RESUME_AFTER_MS = 1000;
/** The longest pause, whatever `retry:` and `Retry-After` say. */
const LONGEST_PAUSE_MS = 60_000;
/** A live stream that has lasted so long is a new one: it has all its resumptions again. Longer than any pause. */
const LASTING_MS = 120_000;

/** Whether, when and from which event a stream can be resumed. */
export interface Resumption {
  /** Sets the id of the last event; an empty id means that the stream cannot be resumed. */
  readonly onId: (id: string) => void;
  /** Sets the pause before a resumption, in ms. */
  readonly onRetry: (ms: number) => void;
  /** The id of the last event (`Last-Event-ID`, WHATWG HTML §9.2.4); empty if there is none. */
  readonly lastEventId: () => string;
  /** How long to wait after this error before the stream is resumed, in ms; undefined if it must not be resumed. */
  readonly pauseAfter: (error: unknown) => number | undefined;
}

/** The resumption of one message, or of a stream that `isLive`, which ends only when it is cut. */
export function resumption(isLive = false): Resumption {
  let lastId = '';
  let resumedFrom = '';
  let retryMs = RESUME_AFTER_MS;
  let idle = 0;
  let resumes = 0;
  let lastCut = performance.now();
  return {
    onId(id) {
      lastId = id;
    },
    onRetry(ms) {
      retryMs = ms;
    },
    lastEventId: () => lastId,
    pauseAfter(error) {
      const now = performance.now();
      if (lastId !== resumedFrom) idle = 0;
      if (isLive && now - lastCut > LASTING_MS) idle = resumes = 0;
      resumedFrom = lastId;
      lastCut = now;
      if (!lastId || !isTemporary(error) || idle >= MAX_IDLE_RESUMES || resumes++ >= MAX_RESUMES)
        return undefined;
      // Longer by up to a half, since a restart of the relay cuts the streams of all pages at once.
      const pauseMs = retryMs * 2 ** idle++ * (1 + Math.random() / 2);
      return Math.min(Math.max(pauseMs, (error.retryAfter ?? 0) * 1000), LONGEST_PAUSE_MS);
    },
  };
}

/**
 * Whether the stream may still go on: the connection failed, or the answer is a temporary failure. `retryable` does not
 * count, since a resumption is no run; but after the deadline nothing goes on.
 */
export function isTemporary(error: unknown): error is RelayError {
  return (
    error instanceof RelayError &&
    error.code !== 'deadline_exceeded' &&
    (error.status === 0 || error.status === 429 || error.status > 500)
  );
}
