import type { BotEvent } from './bot-event.ts';
import { RelayError } from './relay-error.ts';
import { spread } from './waits.ts';

/** How many times in a row a stream is joined without a new event before it fails. */
const MAX_TRIES = 15;
/** The same before the first answer: the message may never have arrived. */
const MAX_UNANSWERED_TRIES = 3;
/** How many times in all, since a stream could break after each event. */
const MAX_JOINS = 50;
/** The pause before the first try, in ms. It doubles with each try. */
const JOIN_AFTER_MS = 250;
/** The longest pause, in ms: the relay keeps a run without readers for seconds only. */
const LONGEST_PAUSE_MS = 2_000;
/** The longest sum of the pauses in a row, in ms, whatever `Retry-After` says. */
const LONGEST_WAIT_MS = 60_000;

/** The error of a stream that was asked for again and does not repeat what was read before. */
export const OTHER_STREAM = new RelayError('The connection is lost.', { code: 'connection_lost', status: 0 });

/** When the stream of a message is joined again, and which of its events are new. */
export interface Joining {
  /** The stream has a new last id: it comes again from the event after that. */
  readonly onId: () => void;
  /**
   * Takes each event, and returns those that are new. The relay repeats the events that were read after the last id, byte
   * for byte. The bot service may repeat them or not: they are held until all of them have come again, and then dropped.
   * If a different event comes first, they are new, and come before it. @throws OTHER_STREAM
   */
  readonly take: (event: BotEvent, data: string) => readonly BotEvent[];
  /** A stream comes again, after the last id or from its beginning: from the relay if it `isJoined`, else from the bot service. */
  readonly begin: (isJoined: boolean) => void;
  /** The stream has ended well. @throws OTHER_STREAM if not all that was read before has come again */
  readonly end: () => void;
  /** How long to wait before the stream is joined, in ms; undefined if that was tried often enough. */
  readonly pauseAfter: (error: RelayError) => number | undefined;
}

/** Follows how far the stream of one message was read. A live stream goes on for days: all of its events are new. */
export function joining(isLive?: boolean): Joining {
  /** The data of the events that were read after the last id, or from the beginning. */
  let tail: string[] = [];
  /** Those of them that have not come again yet. */
  let expected: string[] = [];
  /** The events that seem to come again. */
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
      // It is another message with the same id, such as a consent with the id of its question.
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
      const backOffMs = Math.min(JOIN_AFTER_MS * 2 ** tries, LONGEST_PAUSE_MS);
      const pauseMs = Math.max(spread(backOffMs), retryAfter * 1000);
      waitMs += pauseMs;
      return tries++ < maxTries && joins++ < MAX_JOINS && waitMs <= LONGEST_WAIT_MS ? pauseMs : undefined;
    },
  };
}
