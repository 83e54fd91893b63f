import type { Database } from '../settings/database.ts';

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

/** The runs of a channel. What is read of one that is under way says that it was interrupted. */
export const runRows = (database: Database, channel: number) => ({
  begin(id: string) {
    database.run(FORGET, channel, channel, channel);
    database.run('INSERT INTO runs (id, channel_id, started_at) VALUES (?, ?, ?)', id, channel, Date.now());
  },
  /** Writes how a run ended. Does nothing if it is gone with its channel. */
  end: (id: string, failure?: RunFailure) =>
    database.run(`${END} WHERE id = ?`, Date.now(), failure?.code ?? null, failure?.message ?? null, id),
  find: (id: string) => database.all<Row>(`${SELECT} AND id = ?`, channel, id).map(endedRun)[0],
  /** The run that began last. */
  last: () => database.all<Row>(`${SELECT} ORDER BY position DESC LIMIT 1`, channel).map(endedRun)[0],
  /** The runs that have failed, in the order of their ends. */
  failed: () =>
    database
      .all<Row>(`${SELECT} AND error_code IS NOT NULL ORDER BY ended_after, position`, channel)
      .map(endedRun),
});

/** Ends all runs that were under way when the service stopped. */
export function endInterruptedRuns(database: Database): void {
  database.run(`${END} WHERE ended_at IS NULL`, Date.now(), INTERRUPTED.code, INTERRUPTED.message);
}

/** A run that is over: how it failed, if it did, and the number of the last event that was kept before its end. */
function endedRun({ id, endedAt, endedAfter, code, message }: Row) {
  const failure = code === null ? undefined : { code, message: message ?? '' };
  return { id, failure: endedAt === null ? INTERRUPTED : failure, endedAfter: endedAfter ?? 0 };
}
