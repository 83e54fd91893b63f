import { apiKeysIn } from './api-keys.ts';
import { botsIn } from './bots.ts';
import type { Database } from './database.ts';
import { modelsIn } from './models.ts';
import { type Gone, namespacesIn, projectsIn } from './projects.ts';
import type { Sealer } from './sealed.ts';
import { SettingsError } from './settings-error.ts';

/** The id of the project that each new database has, and the name of its namespace. */
export const DEMO = 'demo';

/** Where `consoleValue` has the hash of the administrator's password, as `hashPassword` makes it. */
export const PASSWORD_HASH = 'password_hash';
/** Where it has the mark of the secret with which the keys are sealed. */
const SECRET_MARK = 'secret_mark';

/**
 * All settings of the service. Each call reads or writes the database, so that what another process changes is in force
 * at once. A value that cannot be used, and a name that is taken or not there, throw a `SettingsError`.
 */
export type Settings = ReturnType<typeof settingsIn>;

/**
 * The settings in a database. A new one gets the project `demo`, with the namespace `demo`.
 * @throws SettingsError if the database was made with another SERVICE_SECRET
 */
export function openSettings(database: Database, sealer: Sealer, onGone: Gone = () => {}): Settings {
  const settings = settingsIn(database, sealer, onGone);
  database.transaction(() => {
    const known = settings.consoleValue(SECRET_MARK);
    if (known === sealer.mark) return;
    if (known !== undefined)
      throw new SettingsError(
        'SERVICE_SECRET is not the secret with which this database was made. Start with that one.',
      );
    settings.setConsoleValue(SECRET_MARK, sealer.mark);
    settings.createProject(DEMO, DEMO);
    settings.addNamespace(DEMO, DEMO);
  });
  return settings;
}

const settingsIn = (database: Database, sealer: Sealer, onGone: Gone) => ({
  ...projectsIn(database, onGone),
  ...namespacesIn(database, onGone),
  ...botsIn(database, onGone),
  ...modelsIn(database, sealer),
  ...apiKeysIn(database, sealer),
  /** A text that is kept for the console. */
  consoleValue: (name: string) =>
    database.get<{ value: string }>('SELECT value FROM console WHERE name = ?', name)?.value,
  setConsoleValue: (name: string, value: string) =>
    void database.run('INSERT OR REPLACE INTO console (name, value) VALUES (?, ?)', name, value),
});
