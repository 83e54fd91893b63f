import type { Sql } from '../settings/sql.ts';

/** The messages of one run, as JSON values. */
export type StoredTurn = readonly unknown[];

export interface TurnBounds {
  /** How much models remember of one channel. */
  readonly maxTurnCharacters: number;
  /** Of how many of its runs: all of them are read for each message. */
  readonly maxTurns: number;
}

/** What models remember of all channels, which the numbers of their rows name. */
export interface TurnTable {
  /** What is remembered of a channel, oldest first: one list for each run. */
  of(channel: number): StoredTurn[];
  /** Writes what is remembered of a run, anew and as a whole. Does nothing if the run is gone with its channel. */
  write(runId: string, turn: StoredTurn): void;
}

const WRITE = `
  INSERT INTO turns (run_id, characters, messages) SELECT id, ?, ? FROM runs WHERE id = ?
  ON CONFLICT (run_id) DO UPDATE SET characters = excluded.characters, messages = excluded.messages`;

const SIZES = `
  SELECT run_id AS runId, characters FROM turns JOIN runs ON runs.id = run_id
  WHERE channel_id = (SELECT channel_id FROM runs WHERE id = ?) ORDER BY position`;

/**
 * What is remembered in a database, within these bounds. The oldest turns are forgotten, but for the first one as long
 * as it fits beside the newest.
 */
export function turnsIn(sql: Sql, { maxTurnCharacters, maxTurns }: TurnBounds): TurnTable {
  return {
    of: (channel) =>
      sql
        .all<{ messages: string }>(
          'SELECT messages FROM turns JOIN runs ON runs.id = run_id WHERE channel_id = ? ORDER BY position',
          channel,
        )
        .map(({ messages }) => JSON.parse(messages) as StoredTurn),
    write(runId, turn) {
      const messages = JSON.stringify(turn);
      sql.run(WRITE, messages.length, messages, runId);
      const sizes = sql.all<{ runId: string; characters: number }>(SIZES, runId);
      let total = sizes.reduce((sum, { characters }) => sum + characters, 0);
      while (total > maxTurnCharacters || sizes.length > maxTurns) {
        const [oldest] = sizes.splice(sizes.length > 2 ? 1 : 0, 1);
        if (!oldest) return;
        sql.run('DELETE FROM turns WHERE run_id = ?', oldest.runId);
        total -= oldest.characters;
      }
    },
  };
}
