import { closeSync, openSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { SettingsError } from '../settings/settings-error.ts';

/** The result of SQLite for a file that another connection has locked (https://sqlite.org/rescode.html). */
const BUSY = 5;

/**
 * Locks a database for one service, by a second file beside it. The system takes the lock back when the process ends in
 * any way. Returns a function that gives it back.
 * @throws SettingsError if another service has it
 */
export function lockFile(path: string): () => void {
  const name = `${resolve(path)}.lock`;
  makePrivate(name);
  const lock = new DatabaseSync(name, { timeout: 0 });
  try {
    lock.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    lock.close();
    if ((error as { readonly errcode?: unknown }).errcode !== BUSY) throw error;
    throw new SettingsError(`Another bot service is running with the database ${path}. Stop it first.`);
  }
  return () => lock.close();
}

/** Makes the file if there is none. One that is there is not opened: to close it would give back the lock. */
function makePrivate(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}
