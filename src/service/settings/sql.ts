import type { DatabaseSync, SQLInputValue, SQLOutputValue } from 'node:sqlite';
import { SettingsError } from './settings-error.ts';

/** The results of SQLite where a table does not allow a change (https://sqlite.org/rescode.html). */
const FOREIGN_KEY = 787;
const TAKEN: readonly unknown[] = [1555, 2067];

/** Statements on a database, each with the values of its parameters. */
export interface Sql {
  all<Row extends Record<string, SQLOutputValue>>(text: string, ...values: SQLInputValue[]): Row[];
  get<Row extends Record<string, SQLOutputValue>>(text: string, ...values: SQLInputValue[]): Row | undefined;
  /** Returns how many rows it has changed. */
  run(text: string, ...values: SQLInputValue[]): number;
}

/**
 * Called after a project was removed, a namespace of it, or a bot of that: what runs for it must end, and its
 * conversations are to be deleted.
 */
export type Gone = (projectId: string, namespace?: string, bot?: string) => void;

/** The statements of a database. They throw the error of SQLite. */
export function sqlOf(database: DatabaseSync): Sql {
  return {
    all: <Row extends Record<string, SQLOutputValue>>(text: string, ...values: SQLInputValue[]) =>
      database.prepare(text).all(...values) as Row[],
    get: <Row extends Record<string, SQLOutputValue>>(text: string, ...values: SQLInputValue[]) =>
      database.prepare(text).get(...values) as Row | undefined,
    run: (text, ...values) => Number(database.prepare(text).run(...values).changes),
  };
}

/** What to say if a change cannot be made: another row has the name, or the row (or what it belongs to) is not there. */
interface Sentences {
  readonly taken?: string;
  readonly missing: string;
}

/** Makes a change, which must change a row. @throws SettingsError */
export function changeRow(change: () => number, { taken, missing }: Sentences): void {
  let changed = 0;
  try {
    changed = change();
  } catch (error) {
    const { errcode } = error as { readonly errcode?: unknown };
    if (taken !== undefined && TAKEN.includes(errcode)) throw new SettingsError(taken);
    if (errcode !== FOREIGN_KEY) throw error;
  }
  if (changed === 0) throw new SettingsError(missing);
}
