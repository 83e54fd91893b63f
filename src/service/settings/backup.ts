import { closeSync, openSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { SettingsError } from './settings-error.ts';

/**
 * Writes a copy of the database at `path`, as it is at one moment, to the new file `target`. A service may go on using
 * the database, which is only read.
 * @throws SettingsError if there is no database, or the file exists or cannot be written
 */
export function backUp(path: string, target: string): void {
  const database = openToRead(path);
  try {
    // SQLite takes an empty file, but none that holds something.
    closeSync(made(target));
    try {
      database.prepare('VACUUM INTO ?').run(resolve(target));
    } catch (error) {
      rmSync(target);
      throw new SettingsError(`${target} could not be written: ${(error as Error).message}`);
    }
  } finally {
    database.close();
  }
}

function openToRead(path: string): DatabaseSync {
  try {
    return new DatabaseSync(resolve(path), { readOnly: true });
  } catch (error) {
    throw new SettingsError(`${path} cannot be opened: ${(error as Error).message}`);
  }
}

function made(target: string): number {
  try {
    return openSync(target, 'wx', 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SettingsError(
      code === 'EEXIST'
        ? `${target} exists already: name a new file.`
        : `${target} cannot be written (${code}).`,
    );
  }
}
