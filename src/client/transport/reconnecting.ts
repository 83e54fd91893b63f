import { type Joining, joining, OTHER_STREAM } from './joining.ts';
import { isSignedOut, isTemporary, RelayError } from './relay-error.ts';
import { spread } from './waits.ts';

/** Asks for a stream, after `lastEventId` if that is not empty. @throws RelayError */
export type OpenStream = (signal: AbortSignal, lastEventId: string) => Promise<Response>;

/** The two ways to ask for a stream; each message has at least one. */
export interface StreamSources {
  /** Sends the message, or asks the bot service for the rest of its answer. */
  readonly open?: OpenStream | undefined;
  /** Asks the relay for the stream of the message with this name. Nothing is sent to the bot service. */
  readonly join?: OpenStream | undefined;
  /** It belongs to no message, so asking for it again runs no bot. */
  readonly isLive?: boolean | undefined;
}

/** Asks for one stream until it has ended. */
export interface Reconnecting extends Pick<Resuming, 'onRetry'>, Pick<Joining, 'take' | 'end'> {
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
 * Asks again for a stream that breaks. A message is joined by its name while the relay has its run. Otherwise the stream
 * is resumed: the bot service is asked for what follows the last event id, if there is one.
 */
export function reconnecting({ open, join, isLive }: StreamSources): Reconnecting {
  const resumed = resuming(isLive);
  const joined = joining(isLive);
  let canJoin = join !== undefined;
  let isJoining = open === undefined;
  let isOpen = false;
  /** The error that has broken the stream which is being joined. */
  let broken: unknown;
  /** The error with which the relay has said that it lost the answer, unless another error event came after it. */
  let lost: RelayError | undefined;
  function resume(error: unknown): number {
    canJoin = isJoining = false;
    const pauseMs = open && resumed.pauseAfter(error);
    if (pauseMs !== undefined) return pauseMs;
    // The bot may have run, and the error of a refused resumption would say that it has not.
    throw (!isSignedOut(error) && lost) || error;
  }
  return {
    ...joined,
    onRetry: resumed.onRetry,
    onId(id) {
      joined.onId();
      resumed.onId(id);
    },
    async ask(signal) {
      const response = await ((isJoining ? join : open) as OpenStream)(signal, resumed.lastEventId());
      isOpen = true;
      joined.begin(isJoining);
      return response;
    },
    onErrorEvent(error) {
      if (error.retryable) return;
      // An instance of the relay is lost, but the bot service may have the rest. After another error, nothing has it.
      lost = ['answer_lost', 'draining'].includes(error.code) ? error : undefined;
      if (!lost) resumed.onId('');
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
      const pauseMs = joined.pauseAfter(error);
      if (pauseMs === undefined) throw broken ?? error;
      return pauseMs;
    },
  };
}

/** Whether the relay, or a proxy, could not answer the request to join. An error of the message does not count. */
function couldNotAnswer({ status, retryable }: RelayError): boolean {
  // A problem of the relay has `retryable`. A page of a proxy has not.
  return Boolean(retryable) || (retryable === undefined && (status === 429 || status > 501));
}

/** Whether the relay has no such run, or does not join streams. */
function isRefusal({ status }: RelayError): boolean {
  return status === 501 || (status > 0 && status <= 410 && status !== 401);
}

/** How many times in a row a stream is resumed without a new event id before it fails. */
const MAX_IDLE_RESUMES = 5;
/** How many times a stream is resumed in all, since a service could give new ids to the same events for ever. */
const MAX_RESUMES = 50;
/** The pause before a resumption, in ms, unless `retry:` sets another. It doubles until there is a new id. */
const RESUME_AFTER_MS = 1000;
/** The longest pause, in ms, whatever `retry:` and `Retry-After` say. */
const LONGEST_PAUSE_MS = 60_000;
/** After this time without a cut, in ms, a live stream has all its resumptions again. It is longer than any pause. */
const LASTING_MS = 120_000;

/** Whether, when and from which event a stream can be resumed. */
export interface Resuming {
  /** Sets the id of the last event; an empty id means that the stream cannot be resumed. */
  readonly onId: (id: string) => void;
  /** Sets the pause before a resumption, in ms. */
  readonly onRetry: (ms: number) => void;
  /** The id of the last event (`Last-Event-ID`, WHATWG HTML §9.2.4); empty if there is none. */
  readonly lastEventId: () => string;
  /** How long to wait after this error before the stream is resumed, in ms; undefined if it must not be resumed. */
  readonly pauseAfter: (error: unknown) => number | undefined;
}

/** The resumptions of one message, or of a live stream, which ends only when it is cut. */
export function resuming(isLive = false): Resuming {
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
      const pauseMs = Math.max(spread(retryMs * 2 ** idle++), (error.retryAfter ?? 0) * 1000);
      return Math.min(pauseMs, LONGEST_PAUSE_MS);
    },
  };
}
