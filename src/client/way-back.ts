import { type Joining, joining, OTHER_STREAM } from './joining.ts';
import { RelayError } from './relay-error.ts';
import { type Resumption, resumption } from './resumption.ts';

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
export interface WayBack extends Pick<Resumption, 'onRetry'>, Pick<Joining, 'isNew' | 'end'> {
  /** Takes each id of the stream, before its event. */
  readonly onId: (id: string) => void;
  /** Asks for the stream, or for what is missing of it. */
  readonly ask: (signal: AbortSignal) => Promise<Response>;
  /** Nothing more can come after an error event of the relay. */
  readonly onFinalEvent: () => void;
  /**
   * How long to wait after this error before asking again, in ms; undefined if there is nothing to ask for.
   * @throws the error with which the stream ends
   */
  readonly pauseAfter: (error: unknown) => number | undefined;
}

/**
 * The way back to a stream that breaks. A message is joined by its name as long as the relay has its run. If it has not,
 * the rest is asked for by the last event id, if there is one.
 */
export function wayBack({ open, join, isLive }: Ways): WayBack {
  const position = resumption(isLive);
  const read = joining();
  let canJoin = join !== undefined;
  let isJoining = open === undefined;
  let isOpen = false;
  /** What has broken the stream that is being joined. */
  let broken: unknown;
  function resume(error: unknown): number {
    canJoin = isJoining = false;
    const pauseMs = open && position.pauseAfter(error);
    if (pauseMs === undefined) throw error;
    return pauseMs;
  }
  return {
    onRetry: position.onRetry,
    isNew: read.isNew,
    end: read.end,
    onId(id) {
      if (read.onId(id)) position.onId(id);
    },
    async ask(signal) {
      const response = await ((isJoining ? join : open) as Open)(signal, position.lastEventId());
      isOpen = true;
      read.begin(isJoining);
      return response;
    },
    onFinalEvent: () => position.onId(''),
    pauseAfter(error) {
      if (!canJoin || !(error instanceof RelayError)) return resume(error);
      const isRefused = isJoining && !isOpen && isRefusal(error);
      if (error === OTHER_STREAM) throw broken;
      if (isOpen || !isJoining) broken = error;
      isOpen = false;
      if (isRefused) return broken === undefined ? undefined : resume(broken);
      if (!isBreak(error) && !(isJoining && isTemporary(error))) return resume(error);
      isJoining = true;
      const pauseMs = read.pauseAfter(error);
      if (pauseMs === undefined) throw broken ?? error;
      return pauseMs;
    },
  };
}

/** Whether the stream broke between the relay and this client, or the relay says that its run can be joined. */
function isBreak({ status, retryable }: RelayError): boolean {
  return status === 0 || retryable === 'same message';
}

/** Whether the relay, or a proxy, could not answer now. What the message itself has failed with is not meant. */
function isTemporary({ status, code, retryable }: RelayError): boolean {
  return retryable === 'new message' || (code === 'unexpected_response' && (status === 429 || status > 501));
}

/** Whether the relay has no such run, or there is nothing that could be asked for one. */
function isRefusal({ status }: RelayError): boolean {
  return status === 501 || (status > 0 && status <= 410 && status !== 401);
}
