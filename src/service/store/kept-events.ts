import type { Database } from '../settings/database.ts';
import { type EventSource, type EventType, eventText } from './bot-event.ts';

/** How much of a channel is kept; the oldest is forgotten first. */
const MAX_KEPT = 200;
const MAX_KEPT_CHARACTERS = 262_144;

/** An event that a channel keeps, as it stands in a stream. */
export type Kept = {
  readonly sequence: number;
  readonly runId: string;
  readonly text: string;
  /** The id of the bot's message, if it is one. */
  readonly messageId: string | null;
};

export interface NewEvent {
  readonly eventType: EventType;
  readonly source: EventSource;
  readonly fact: object;
  readonly messageId?: string;
}

const NEXT = `
  UPDATE channels SET sequence = sequence + 1, last_activity_at = ?
  WHERE id = (SELECT channel_id FROM runs WHERE id = ? AND channel_id = ?) RETURNING sequence`;

const FORGET = `
  DELETE FROM kept WHERE channel_id = ? AND sequence <= (
    SELECT max(sequence) FROM (
      SELECT sequence, row_number() OVER newest AS number, sum(characters) OVER newest AS total
      FROM kept WHERE channel_id = ? WINDOW newest AS (ORDER BY sequence DESC)
    ) WHERE number > ${MAX_KEPT} OR total > ${MAX_KEPT_CHARACTERS}
  )`;

/** What was said in a channel. `idOf` makes the text behind `id:` of the number of an event. */
export const keptEvents = (
  database: Database,
  channel: number,
  idOf: (sequence: number) => string = String,
) => ({
  /** All that is kept, oldest first. */
  all: () =>
    database.all<Kept>(
      'SELECT sequence, run_id AS runId, message_id AS messageId, text FROM kept WHERE channel_id = ? ORDER BY sequence',
      channel,
    ),
  /** Keeps an event of a run under the next number, in a transaction. Does nothing if the run is gone. */
  add({ eventType, source, fact, messageId }: NewEvent): Kept | undefined {
    const runId = source.requestId;
    const createdAt = new Date();
    const next = database.get<{ sequence: number }>(NEXT, createdAt.getTime(), runId, channel);
    if (!next) return undefined;
    const text = eventText(eventType, { source, fact, kept: { id: idOf(next.sequence), createdAt } });
    database.run(
      'INSERT INTO kept (channel_id, sequence, run_id, message_id, characters, text) VALUES (?, ?, ?, ?, ?, ?)',
      ...[channel, next.sequence, runId, messageId ?? null, text.length, text],
    );
    database.run(FORGET, channel, channel);
    return { sequence: next.sequence, runId, text, messageId: messageId ?? null };
  },
});
