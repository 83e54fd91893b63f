import { type EventSource, type EventType, eventText } from './bot-event.ts';
import { type Run, SUSPENDED } from './run.ts';

/** How much of a channel is kept; the oldest is forgotten first. */
const MAX_KEPT = 200;
const MAX_KEPT_CHARACTERS = 262_144;
/** How many runs that are over can still be followed by `Last-Event-ID`. */
const MAX_ENDED_RUNS = 4;

/** An event that a channel keeps, as it stands in a stream. */
export interface Kept {
  readonly sequence: number;
  readonly runId: string;
  readonly text: string;
  /** The id of the bot's message, if it is one. */
  readonly messageId: string | undefined;
}

/** A tool call that waits for the user's consent. */
export interface PendingConsent {
  readonly processId: string;
  readonly pendingCalls: readonly PendingCall[];
}

export interface PendingCall {
  readonly toolCallId: string;
  readonly toolsetName: string;
  readonly toolName: string;
  readonly parameter: object;
  readonly alreadyAllowed: boolean;
}

/** One conversation with one bot. */
export interface Channel {
  readonly id: string;
  title: string | undefined;
  lastActivityAt: Date;
  pendingConsent: PendingConsent | undefined;
  /** Whether the user has allowed the bot's tools for good. */
  allowsTools: boolean;
  /** The number of the last event that was kept; 0 if there is none. */
  readonly sequence: number;
  /** What was said, oldest first. */
  readonly kept: readonly Kept[];
  /** The open runs, and a few that are over. */
  readonly runs: readonly Run[];
  /** Keeps an event of a run under the next number; returns it. */
  keep(eventType: EventType, event: { source: EventSource; fact: object; messageId?: string }): Kept;
  addRun(run: Run): void;
  /** Stops the open runs, or the one with this id; returns whether there was one. */
  suspend(runId?: string): boolean;
}

/** How a channel writes the number of what it keeps into `id:`. */
export type IdOf = (sequence: number) => string;

/** A new channel. Its numbers begin after `lastSequence`. */
export function newChannel(id: string, idOf: IdOf = String, lastSequence = 0): Channel {
  let sequence = lastSequence;
  let kept: Kept[] = [];
  let runs: Run[] = [];
  const channel: Channel = {
    id,
    title: undefined,
    lastActivityAt: new Date(),
    pendingConsent: undefined,
    allowsTools: false,
    get sequence() {
      return sequence;
    },
    get kept() {
      return kept;
    },
    get runs() {
      return runs;
    },
    keep(eventType, { source, fact, messageId }) {
      sequence += 1;
      const text = eventText(eventType, { source, fact, id: idOf(sequence) });
      const one: Kept = { sequence, runId: source.requestId, text, messageId };
      kept = newest([...kept, one]);
      channel.lastActivityAt = new Date();
      return one;
    },
    addRun(run) {
      const ended = runs.filter(({ isOver }) => isOver).slice(-MAX_ENDED_RUNS);
      runs = [...ended, ...runs.filter(({ isOver }) => !isOver), run];
    },
    suspend(runId) {
      const meant = runs.filter((run) => !run.isOver && (runId === undefined || run.id === runId));
      for (const { stop } of meant) stop.abort(SUSPENDED);
      return meant.length > 0;
    },
  };
  return channel;
}

/** The newest of `kept` that the bounds allow. */
function newest(kept: readonly Kept[]): Kept[] {
  let characters = 0;
  const first = kept.findLastIndex(({ text }) => {
    characters += text.length;
    return characters > MAX_KEPT_CHARACTERS;
  });
  return kept.slice(first + 1).slice(-MAX_KEPT);
}
