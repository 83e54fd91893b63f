import type { Database } from '../settings/database.ts';

/** The messages of one run, as JSON values. */
export type StoredTurn = readonly unknown[];

export interface TurnBounds {
  /** How much models remember of one channel. */
  readonly maxTurnCharacters: number;
  /** Of how many of its runs: all of them are read for each message. */
  readonly maxTurns: number;
}

const WRITE = `
  INSERT INTO turns (run_id, characters, messages) SELECT id, ?, ? FROM runs WHERE id = ?
  ON CONFLICT (run_id) DO UPDATE SET characters = excluded.characters, messages = excluded.messages`;

const SELECT = 'FROM turns JOIN runs ON runs.id = run_id WHERE channel_id = ? ORDER BY position';

/**
 * What models remember of a channel: a turn for each run. Beyond the bounds, the oldest turns are forgotten, but for the
 * first one as long as it fits beside the newest.
 */
export const turnsOf = (database: Database, channel: number, bounds: TurnBounds) => ({
  /** All turns, oldest first. */
  all: () =>
    database
      .all<{ messages: string }>(`SELECT messages ${SELECT}`, channel)
      .map(({ messages }) => JSON.parse(messages) as StoredTurn),
  /** Writes the turn of a run, anew and as a whole. Does nothing if the run is gone. */
  write(runId: string, turn: StoredTurn) {
    const messages = JSON.stringify(turn);
    database.run(WRITE, messages.length, messages, runId);
    const sizes = database.all<{ id: string; characters: number }>(
      `SELECT run_id AS id, characters ${SELECT}`,
      channel,
    );
    let total = sizes.reduce((sum, { characters }) => sum + characters, 0);
    while (total > bounds.maxTurnCharacters || sizes.length > bounds.maxTurns) {
      const [oldest] = sizes.splice(sizes.length > 2 ? 1 : 0, 1);
      if (!oldest) return;
      database.run('DELETE FROM turns WHERE run_id = ?', oldest.id);
      total -= oldest.characters;
    }
  },
});
