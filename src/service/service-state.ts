import { randomBytes } from 'node:crypto';
import { type Secret, secret } from '../secret.ts';
import { type Knowledge, knowledge } from './knowledge/knowledge.ts';
import { type Sandboxes, sandboxes } from './sandbox/sandboxes.ts';
import { openDatabase } from './settings/database.ts';
import { sealer } from './settings/sealed.ts';
import { openSettings, type Settings } from './settings/settings.ts';
import { type Channels, openChannels } from './store/channels.ts';
import { lockFile } from './store/lock-file.ts';

/** A file with all that the service keeps, and SERVICE_SECRET. */
export interface DatabaseFile {
  readonly path: string;
  readonly secret: Secret;
}

/** What the service keeps. */
export interface ServiceState {
  readonly settings: Settings;
  readonly channels: Channels;
  readonly sandboxes: Sandboxes;
  readonly knowledge: Knowledge;
  /** Closes the database. The runs must be over. */
  close(): void;
}

/**
 * Opens what the service keeps: in the file, which no other service may use until `close`, or else in memory.
 * @throws SettingsError
 */
export function openState(file: DatabaseFile | undefined, keepDays: number): ServiceState {
  const unlock = file && lockFile(file.path);
  const opened: (() => void)[] = unlock ? [unlock] : [];
  const close = () => {
    for (const end of opened.splice(0).reverse()) end();
  };
  try {
    const database = openDatabase(file?.path);
    opened.push(() => database.close());
    const sealed = sealer(file?.secret ?? secret(randomBytes(32).toString('base64url')));
    const settings = openSettings(database, sealed, (...gone) => channels.deleteOf(...gone));
    const all = sandboxes();
    const channels = openChannels(database, { keepDays, isFile: file !== undefined, onGone: all.forget });
    return { settings, channels, sandboxes: all, knowledge: knowledge(database), close };
  } catch (error) {
    close();
    throw error;
  }
}
