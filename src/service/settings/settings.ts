import type { DatabaseSync } from 'node:sqlite';
import { type ApiKeys, apiKeysIn } from './api-keys.ts';
import { type Bots, botsIn } from './bots.ts';
import { transaction } from './database.ts';
import { type Models, modelsIn } from './models.ts';
import { type Projects, projectsIn } from './projects.ts';
import type { Sealer } from './sealed.ts';
import { SettingsError } from './settings-error.ts';
import { type Gone, type Sql, sqlOf } from './sql.ts';

/** The id of the project that each new database has, and the name of its namespace. */
export const DEMO = 'demo';

/**
 * All settings of the service. Each call reads or writes the database, so that what another process changes is in force
 * at once. A value that cannot be used, and a name that is taken or not there, throw a `SettingsError`.
 */
export interface Settings extends Projects, Bots, Models, ApiKeys {
  /** A text that is kept for the console. */
  consoleValue(name: string): string | undefined;
  setConsoleValue(name: string, value: string): void;
}

/** Where `consoleValue` has the hash of the administrator's password, as `hashPassword` makes it. */
export const PASSWORD_HASH = 'password_hash';

/**
 * The settings in a database. A new one gets the project `demo`, with the namespace `demo`.
 * @throws SettingsError if the database was made with another SERVICE_SECRET
 */
export function openSettings(database: DatabaseSync, sealer: Sealer, onGone: Gone = () => {}): Settings {
  const sql = sqlOf(database);
  const settings: Settings = {
    ...projectsIn(sql, onGone),
    ...botsIn(sql, onGone),
    ...modelsIn(sql, sealer),
    ...apiKeysIn(sql, sealer),
    consoleValue: (name) =>
      sql.get<{ value: string }>('SELECT value FROM console WHERE name = ?', name)?.value,
    setConsoleValue: (name, value) =>
      void sql.run('INSERT OR REPLACE INTO console (name, value) VALUES (?, ?)', name, value),
  };
  transaction(database, () => begin(sql, settings, sealer.mark));
  return settings;
}

/** Where the mark of the secret stands with which the keys are sealed. */
const SECRET_MARK = 'secret_mark';

function begin(sql: Sql, settings: Settings, mark: string): void {
  const known = settings.consoleValue(SECRET_MARK);
  if (known === mark) return;
  if (known !== undefined)
    throw new SettingsError(
      'SERVICE_SECRET is not the secret with which this database was made. Start with that one.',
    );
  settings.setConsoleValue(SECRET_MARK, mark);
  sql.run('INSERT INTO projects (id, name, created_at) VALUES (?, ?, ?)', DEMO, DEMO, Date.now());
  settings.addNamespace(DEMO, DEMO);
}
