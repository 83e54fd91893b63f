import { RelayError } from './relay-error.ts';

/** How often in a row a stream is resumed without a new id, before that counts as failed. */
const MAX_IDLE_RESUMES = 5;
/** How often in all: a service that gives new ids to the same events would else run for ever. */
const MAX_RESUMES = 50;
/** The pause before a stream is resumed, unless `retry:` says another; doubled for each further time without a new id. */
const RESUME_AFTER_MS = 1000;

/** From where a stream can go on, and when. */
export interface Resumption {
  /** Takes in the id of an event; an empty one takes back those before it. */
  readonly onId: (id: string) => void;
  /** Takes in how long to wait, in ms. */
  readonly onRetry: (ms: number) => void;
  /** The id to go on from (`Last-Event-ID`, WHATWG HTML §9.2.4); empty at the beginning. */
  readonly from: () => string;
  /** How long to wait after this error before going on, in ms; undefined if the stream is given up. */
  readonly pauseAfter: (error: unknown) => number | undefined;
}

/** Follows one message. */
export function resumption(): Resumption {
  let lastId = '';
  let resumedFrom = '';
  let retryMs = RESUME_AFTER_MS;
  let idle = 0;
  let resumes = 0;
  return {
    onId(id) {
      lastId = id;
    },
    onRetry(ms) {
      retryMs = ms;
    },
    from: () => lastId,
    pauseAfter(error) {
      if (lastId !== resumedFrom) idle = 0;
      resumedFrom = lastId;
      if (!lastId || !mayPass(error) || idle === MAX_IDLE_RESUMES || resumes++ === MAX_RESUMES) return;
      return Math.max(retryMs * 2 ** idle++, (error.retryAfter ?? 0) * 1000);
    },
  };
}

/** Whether the run may still be there: the connection failed, or what failed on the way may pass. */
function mayPass(error: unknown): error is RelayError {
  return error instanceof RelayError && (error.status === 0 || error.status === 429 || error.status > 500);
}
