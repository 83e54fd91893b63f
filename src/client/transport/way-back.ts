import { type Joining, joining, OTHER_STREAM } from './joining.ts';
import { isSignedOut, isTemporary, RelayError } from './relay-error.ts';

/** Asks for a stream, after `lastEventId` if that is not empty. @throws RelayError */
export type Open = (signal: AbortSignal, lastEventId: string) => Promise<Response>;

/** The two ways to a stream; each message has at least one. */
export interface Ways {
  /** Sends the message, or asks the bot service for the rest of its answer. */
  readonly open?: Open | undefined;
  /** Asks the relay alone for the message's stream, by its name: nothing is sent to the bot service, or sent again. */
  readonly join?: Open | undefined;
  /** It belongs to no message, so that asking for it again is no run. */
  readonly isLive?: boolean | undefined;
}

/** Asks for one stream until it has ended. */
export interface WayBack extends Pick<Resumption, 'onRetry'>, Pick<Joining, 'take' | 'end'> {
  /** Takes each id of the stream, before its event. */
  readonly onId: (id: string) => void;
  /** Asks for the stream, or for what is missing of it. */
  readonly ask: (signal: AbortSignal) => Promise<Response>;
  /** Takes the error event of the relay with which a stream ends. */
  readonly onErrorEvent: (error: RelayError) => void;
  /**
   * How long to wait after this error before asking again, in ms; undefined if there is nothing to ask for.
   * @throws the error with which the stream ends
   */
  readonly pauseAfter: (error: unknown) => number | undefined;
}

/**
 * The way back to a stream that breaks. A message is joined by its name as long as the relay has its run. If it has not,
 * or has lost it, the rest is asked for by the last event id, if there is one.
 */
export function wayBack({ open, join, isLive }: Ways): WayBack {
  const position = resumption(isLive);
  const read = joining(isLive);
  let canJoin = join !== undefined;
  let isJoining = open === undefined;
  let isOpen = false;
  /** What has broken the stream that is being joined. */
  let broken: unknown;
  /** With what the relay has lost the answer, unless it has said since then how that ended. */
  let lost: RelayError | undefined;
  function resume(error: unknown): number {
    canJoin = isJoining = false;
    const pauseMs = open && position.pauseAfter(error);
    if (pauseMs !== undefined) return pauseMs;
    // A refusal of the rest would say that nothing has run.
    throw (!isSignedOut(error) && lost) || error;
  }
  return {
    ...read,
    onRetry: position.onRetry,
    onId(id) {
      read.onId();
      position.onId(id);
    },
    async ask(signal) {
      const response = await ((isJoining ? join : open) as Open)(signal, position.lastEventId());
      isOpen = true;
      read.begin(isJoining);
      return response;
    },
    onErrorEvent(error) {
      if (error.retryable) return;
      // Its instance is lost, or leaves: the bot service may still have the rest. Else the relay has tried all.
      lost = ['answer_lost', 'draining'].includes(error.code) ? error : undefined;
      if (!lost) position.onId('');
    },
    pauseAfter(error) {
      if (!canJoin || !(error instanceof RelayError)) return resume(error);
      const isRefused = isJoining && !isOpen && isRefusal(error);
      if (error === OTHER_STREAM) throw broken;
      if (isOpen || !isJoining) broken = error;
      isOpen = false;
      if (isRefused) return broken === undefined ? undefined : resume(broken);
      // Status 0: the stream broke between the relay and this client.
      if (error.status !== 0 && !(isJoining && couldNotAnswer(error))) return resume(error);
      isJoining = true;
      const pauseMs = read.pauseAfter(error);
      if (pauseMs === undefined) throw broken ?? error;
      return pauseMs;
    },
  };
}

/** Whether the relay, or a proxy, could not answer now. What the message itself has failed with is not meant. */
function couldNotAnswer({ status, retryable }: RelayError): boolean {
  // A problem of the relay has `retryable`, and a page of a proxy has not.
  return Boolean(retryable) || (retryable === undefined && (status === 429 || status > 501));
}

/** Whether the relay has no such run, or there is nothing that could be asked for one. */
function isRefusal({ status }: RelayError): boolean {
  return status === 501 || (status > 0 && status <= 410 && status !== 401);
}

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
