import { randomBytes, randomUUID } from 'node:crypto';
import { type Secret, secret } from '../../secret.ts';
import type { Database } from './database.ts';
import type { Sealer } from './sealed.ts';
import { SettingsError } from './settings-error.ts';
import { checkLine, checkVisible } from './values.ts';

/** A key with which the bots of a project are called. */
export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly isEnabled: boolean;
  readonly createdAt: Date;
  /** To the minute. */
  readonly lastUsedAt?: Date | undefined;
}

type KeyRow = {
  id: string;
  project_id: string;
  name: string;
  is_enabled: number;
  created_at: number;
  last_used_at: number | null;
};

const COLUMNS = 'id, project_id, name, is_enabled, created_at, last_used_at';
const KEY_BYTES = 32;
const MINUTE_MS = 60_000;
const MISSING = { missing: 'There is no such key.' };

/** The API keys in the database. */
export function apiKeysIn(database: Database, sealer: Sealer) {
  const found = (key: string) =>
    database.get<KeyRow>(`SELECT ${COLUMNS} FROM api_keys WHERE key_hash = ?`, sealer.hash(key));
  const add = (projectId: string, name: string, key: string): void => {
    checkLine("A key's name", name, { field: 'name', max: 100 });
    const id = randomUUID();
    const sealed = sealer.seal(secret(key), rowOf(id));
    database.change(
      { taken: `There is already a key ${name}.`, missing: 'There is no such project.' },
      `INSERT INTO api_keys (id, project_id, name, sealed_key, key_hash, is_enabled, created_at)
        VALUES (?, ?, ?, ?, ?, 1, ?)`,
      ...[id, projectId, name, sealed, sealer.hash(key), Date.now()],
    );
  };
  return {
    /** The keys of a project, oldest first. */
    keys: (projectId: string): ApiKey[] =>
      database
        .all<KeyRow>(
          `SELECT ${COLUMNS} FROM api_keys WHERE project_id = ? ORDER BY created_at, rowid`,
          projectId,
        )
        .map(keyOf),
    /** Makes a key; it is enabled. */
    createKey(projectId: string, name: string): Secret {
      const key = `brk_${randomBytes(KEY_BYTES).toString('base64url')}`;
      add(projectId, name, key);
      return secret(key);
    },
    /** Adds a key that was made elsewhere. One that the project has already stays as it is, also if it is disabled. */
    importKey(projectId: string, name: string, key: string): ApiKey {
      checkVisible('A key', key, { field: 'key', max: 1000 });
      if (!found(key)) add(projectId, name, key);
      const row = found(key);
      if (row?.project_id !== projectId) throw new SettingsError('The key is of another project.');
      return keyOf(row);
    },
    /** Whether any project has this key, also if it is disabled. */
    hasKey: (key: string) => found(key) !== undefined,
    revealKey(id: string): Secret {
      const text = 'SELECT sealed_key FROM api_keys WHERE id = ?';
      const row = database.get<{ sealed_key: Uint8Array<ArrayBuffer> }>(text, id);
      if (!row) throw new SettingsError(MISSING.missing);
      return sealer.open(row.sealed_key, rowOf(id));
    },
    setKeyEnabled: (id: string, isEnabled: boolean) =>
      database.change(MISSING, 'UPDATE api_keys SET is_enabled = ? WHERE id = ?', Number(isEnabled), id),
    deleteKey: (id: string) => database.change(MISSING, 'DELETE FROM api_keys WHERE id = ?', id),
    /** The id of the project that an enabled key is of. It notes at most once a minute that the key was used. */
    projectOfKey(key: string): string | undefined {
      const row = found(key);
      if (row?.is_enabled !== 1) return undefined;
      if (Date.now() - (row.last_used_at ?? 0) >= MINUTE_MS)
        database.run('UPDATE api_keys SET last_used_at = ? WHERE id = ?', Date.now(), row.id);
      return row.project_id;
    },
  };
}

/** Where a key stands, so that it opens nowhere else. */
const rowOf = (id: string) => `api_keys/${id}`;

function keyOf({ id, name, is_enabled, created_at, last_used_at }: KeyRow): ApiKey {
  return {
    ...{ id, name },
    isEnabled: is_enabled === 1,
    createdAt: new Date(created_at),
    lastUsedAt: last_used_at === null ? undefined : new Date(last_used_at),
  };
}
