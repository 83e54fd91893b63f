import type { BotEvent } from './bot-event.ts';
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

/** A stream that was asked for again does not have what was read before. */
export const OTHER_STREAM = new RelayError('The connection is lost.', { code: 'connection_lost', status: 0 });

/** Whether and when the stream of a message can be joined, and which of its events were read before. */
export interface Joining {
  /** The stream has a new last id, after which it comes again. After an empty one, it cannot be joined any more. */
  readonly onId: () => void;
  /**
   * Takes each event, and returns those that are new. A joined stream has the same events as before, byte for byte. The
   * bot service may repeat those after the last id, or not, or in another form: they are held until all of them have come
   * again, and are dropped then; if another event comes first, they come before it. @throws OTHER_STREAM
   */
  readonly take: (event: BotEvent, data: string) => readonly BotEvent[];
  /** A stream has been answered: after the last id if there is one. Unless it `isJoined`, the bot service has sent it. */
  readonly begin: (isJoined: boolean) => void;
  /** The stream has ended well. @throws OTHER_STREAM if not all that was read before has come again */
  readonly end: () => void;
  /** How long to wait before the stream is joined, in ms; undefined if that was tried often enough. */
  readonly pauseAfter: (error: RelayError) => number | undefined;
}

/** Follows how far the stream of one message was read. One that `isLive` goes on for days: of that, all is new. */
export function joining(isLive?: boolean): Joining {
  /** The data of what was read after the last id, or from the beginning. */
  let tail: string[] = [];
  /** What of it has not come again yet, and what has. */
  let expected: string[] = [];
  let held: BotEvent[] = [];
  let isOfRelay = false;
  let isAnswered = false;
  let tries = 0;
  let joins = 0;
  let waitMs = 0;
  return {
    onId() {
      tail = [];
    },
    take(event, data) {
      const next = expected.shift();
      held.push(event);
      if (data === next) {
        if (!expected.length) held = [];
        return [];
      }
      // Messages may have the same id, such as a consent that has that of its question.
      if (isOfRelay && next !== undefined) throw OTHER_STREAM;
      expected = [];
      tries = waitMs = 0;
      if (!isLive && !event.id) tail.push(data);
      return held.splice(0);
    },
    begin(isJoined) {
      isAnswered = true;
      isOfRelay = isJoined;
      expected = [...tail];
      held = [];
    },
    end() {
      if ((isOfRelay ? expected : held).length > 0) throw OTHER_STREAM;
    },
    pauseAfter({ retryable, retryAfter = 0 }) {
      const maxTries = isAnswered || retryable ? MAX_TRIES : MAX_UNANSWERED_TRIES;
      // Longer by up to a half, since a restart of the relay cuts the streams of all pages at once.
      const backOffMs = Math.min(JOIN_AFTER_MS * 2 ** tries, LONGEST_PAUSE_MS) * (1 + Math.random() / 2);
      const pauseMs = Math.max(backOffMs, retryAfter * 1000);
      waitMs += pauseMs;
      return tries++ < maxTries && joins++ < MAX_JOINS && waitMs <= LONGEST_WAIT_MS ? pauseMs : undefined;
    },
  };
}
