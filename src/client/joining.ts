import { RelayError } from './relay-error.ts';

/** How often in a row a stream is joined without a new event before it fails. */
const MAX_TRIES = 15;
/** The same if nothing was answered yet: the message may not have arrived at all, and its user waits in vain. */
const MAX_UNANSWERED_TRIES = 3;
/** How often in all, since a stream could break after each event. */
const MAX_JOINS = 50;
/** The pause before the first try, in ms. It doubles up to the longest: a run goes on alone for seconds only. */
const JOIN_AFTER_MS = 250;
const LONGEST_PAUSE_MS = 2_000;
/** The longest sum of all pauses in a row, whatever `Retry-After` says, in ms. */
const LONGEST_WAIT_MS = 60_000;

/** A joined stream is not the one that was read before. It is never shown: what has broken that one is. */
export const OTHER_STREAM = new RelayError('', { code: 'connection_lost', status: 0 });

/** Whether and when the stream of a message can be joined, and which of its events were read before. */
export interface Joining {
  /** Takes each id of the stream, before its event, and returns whether it is new. */
  readonly onId: (id: string) => boolean;
  /**
   * Takes each event, and returns whether it is new. A joined stream has the same events, byte for byte, so they are
   * counted. @throws OTHER_STREAM
   */
  readonly isNew: (data: string, id: string | undefined) => boolean;
  /** A stream has been answered: after the last id if there is one. */
  readonly begin: (isJoined: boolean) => void;
  /** The stream has ended well. @throws OTHER_STREAM if not all that was read before has come again */
  readonly end: () => void;
  /** How long to wait before the stream is joined, in ms; undefined if that was tried often enough. */
  readonly pauseAfter: (error: RelayError) => number | undefined;
}

/** Follows how far the stream of one message was read. */
export function joining(): Joining {
  /** How many events were read in all, and up to the last id; 0 without one. */
  let read = 0;
  let readAtId = 0;
  /** How many of them come again. */
  let again = 0;
  let first: string | undefined;
  let isAnswered = false;
  let readBefore = 0;
  let tries = 0;
  let joins = 0;
  let waitMs = 0;
  return {
    onId(id) {
      if (again) return false;
      readAtId = id ? read : 0;
      return true;
    },
    isNew(data, id) {
      if (again) {
        // Messages may have the same id, such as a consent that has that of its question.
        if (again-- === read && data !== first) throw OTHER_STREAM;
        return false;
      }
      if (!read++) first = data;
      if (id) readAtId = read;
      return true;
    },
    begin(isJoined) {
      isAnswered = true;
      again = isJoined ? read - readAtId : 0;
    },
    end() {
      if (again) throw OTHER_STREAM;
    },
    pauseAfter({ retryable, retryAfter = 0 }) {
      if (read > readBefore) tries = waitMs = 0;
      readBefore = read;
      const maxTries = isAnswered || retryable ? MAX_TRIES : MAX_UNANSWERED_TRIES;
      // Longer by up to a half, since a restart of the relay cuts the streams of all pages at once.
      const backOffMs = Math.min(JOIN_AFTER_MS * 2 ** tries, LONGEST_PAUSE_MS) * (1 + Math.random() / 2);
      const pauseMs = Math.max(backOffMs, retryAfter * 1000);
      waitMs += pauseMs;
      return tries++ < maxTries && joins++ < MAX_JOINS && waitMs <= LONGEST_WAIT_MS ? pauseMs : undefined;
    },
  };
}
