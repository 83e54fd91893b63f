import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Secret, secret } from '../../../src/secret.ts';
import type { Bot } from '../../../src/service/settings/bot.ts';
import { type Database, openDatabase } from '../../../src/service/settings/database.ts';
import { sealer } from '../../../src/service/settings/sealed.ts';
import { DEMO, openSettings, type Settings } from '../../../src/service/settings/settings.ts';

export const SERVICE_SECRET = 'a-secret-of-the-service-0123456789-XYZ';

/** Settings in a file of their own folder, which can be opened several times, as other processes do. */
export function settingsFile() {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-settings-'));
  const path = join(folder, 'service.db');
  const databases: Database[] = [];
  return {
    path,
    open(with_: Secret = secret(SERVICE_SECRET)): Settings {
      const database = openDatabase(path);
      databases.push(database);
      return openSettings(database, sealer(with_));
    },
    /** Opens the file without the settings. */
    tables(): Database {
      const database = openDatabase(path);
      databases.push(database);
      return database;
    },
    /** All bytes of the folder: of the database and of what SQLite writes beside it. */
    bytes: () => Buffer.concat(readdirSync(folder).map((name) => readFileSync(join(folder, name)))),
    close() {
      for (const database of databases) if (database.isOpen) database.close();
    },
    remove() {
      for (const database of databases) if (database.isOpen) database.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** Enables or disables a key, as an administrator does; one that is not known becomes one of the project `demo`. */
export function setKeyEnabled(
  { settings }: { readonly settings: Settings },
  key: string,
  isEnabled: boolean,
) {
  const { id } = settings.importKey(DEMO, `imported ${secret(key).fingerprint}`, key);
  settings.setKeyEnabled(id, isEnabled);
}

/** A bot with these settings. */
export const botWith = (own: Partial<Bot> = {}): Bot => ({
  ...{ namespace: 'demo', name: 'helper', title: 'Helper', instructions: 'Help.' },
  ...{ suggestions: [], tools: [], usesKnowledge: false },
  ...own,
});
