import type { Sql } from '../settings/sql.ts';

/** How a run failed: `code` is for programs, `message` a plain sentence for people. */
export interface RunFailure {
  readonly code: string;
  readonly message: string;
}

/** What the service says of a run that was under way when it stopped. */
export const INTERRUPTED: RunFailure = {
  code: 'INTERRUPTED',
  message: 'The bot service was stopped before this answer was complete.',
};

/** A run that is over, or that was lost. */
export interface EndedRun {
  readonly id: string;
  /** Undefined if it came to its end. */
  readonly failure: RunFailure | undefined;
  /** The number of the last event that the channel had kept when it ended. */
  readonly endedAfter: number;
}

/** The runs of all channels, which the numbers of their rows name. */
export interface RunTable {
  begin(channel: number, id: string): void;
  /** Writes how a run ended. Does nothing if it is gone with its channel. */
  end(id: string, failure?: RunFailure): void;
  find(channel: number, id: string): EndedRun | undefined;
  /** The run that began last, as if it were over. */
  last(channel: number): EndedRun | undefined;
  /** The runs that have failed, in the order of their ends. */
  failed(channel: number): EndedRun[];
  /** Ends all runs that were under way when the service stopped. */
  endInterrupted(): void;
}

type Row = {
  id: string;
  endedAt: number | null;
  endedAfter: number | null;
  code: string | null;
  message: string | null;
};

const SELECT = `
  SELECT id, ended_at AS endedAt, ended_after AS endedAfter, error_code AS code, error_message AS message
  FROM runs WHERE channel_id = ?`;

const END = `
  UPDATE runs SET ended_at = ?, error_code = ?, error_message = ?,
    ended_after = (SELECT sequence FROM channels WHERE channels.id = channel_id)`;

/** Forgets runs of which nothing is kept, but for the newest. */
const FORGET = `
  DELETE FROM runs WHERE channel_id = ? AND ended_at IS NOT NULL
    AND id NOT IN (SELECT run_id FROM kept WHERE channel_id = ?)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE run_id = runs.id)
    AND position NOT IN (SELECT position FROM runs WHERE channel_id = ? ORDER BY position DESC LIMIT 200)`;

/** The runs in a database. */
export function runsIn(sql: Sql): RunTable {
  const one = (row: Row | undefined) => row && endedRun(row);
  return {
    begin(channel, id) {
      sql.run(FORGET, channel, channel, channel);
      sql.run('INSERT INTO runs (id, channel_id, started_at) VALUES (?, ?, ?)', id, channel, Date.now());
    },
    end: (id, failure) =>
      void sql.run(`${END} WHERE id = ?`, Date.now(), failure?.code ?? null, failure?.message ?? null, id),
    find: (channel, id) => one(sql.get<Row>(`${SELECT} AND id = ?`, channel, id)),
    last: (channel) => one(sql.get<Row>(`${SELECT} ORDER BY position DESC LIMIT 1`, channel)),
    failed: (channel) =>
      sql
        .all<Row>(`${SELECT} AND error_code IS NOT NULL ORDER BY ended_after, position`, channel)
        .map(endedRun),
    endInterrupted: () =>
      void sql.run(`${END} WHERE ended_at IS NULL`, Date.now(), INTERRUPTED.code, INTERRUPTED.message),
  };
}

function endedRun({ id, endedAt, endedAfter, code, message }: Row): EndedRun {
  const failure = code === null ? undefined : { code, message: message ?? '' };
  return { id, failure: endedAt === null ? INTERRUPTED : failure, endedAfter: endedAfter ?? 0 };
}
