import { randomBytes, randomUUID } from 'node:crypto';
import { type Secret, secret } from '../../secret.ts';
import type { Sealer } from './sealed.ts';
import { SettingsError } from './settings-error.ts';
import { changeRow, type Sql } from './sql.ts';
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

export interface ApiKeys {
  /** The keys of a project, oldest first. */
  keys(projectId: string): ApiKey[];
  /** Makes a key; it is enabled. */
  createKey(projectId: string, name: string): Secret;
  /** Adds a key that was made elsewhere. One that the project has already stays as it is, also if it is disabled. */
  importKey(projectId: string, name: string, key: string): ApiKey;
  /** Whether any project has this key, also if it is disabled. */
  hasKey(key: string): boolean;
  revealKey(id: string): Secret;
  setKeyEnabled(id: string, isEnabled: boolean): void;
  deleteKey(id: string): void;
  /** The id of the project that an enabled key is of. It notes at most once a minute that the key was used. */
  projectOfKey(key: string): string | undefined;
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
export function apiKeysIn(sql: Sql, sealer: Sealer): ApiKeys {
  const found = (key: string) =>
    sql.get<KeyRow>(`SELECT ${COLUMNS} FROM api_keys WHERE key_hash = ?`, sealer.hash(key));
  const add = (projectId: string, name: string, key: string): void => {
    checkLine("A key's name", name, { max: 100 });
    const id = randomUUID();
    const sealed = sealer.seal(secret(key), rowOf(id));
    const text = `INSERT INTO api_keys (id, project_id, name, sealed_key, key_hash, is_enabled, created_at)
      VALUES (?, ?, ?, ?, ?, 1, ?)`;
    changeRow(() => sql.run(text, id, projectId, name, sealed, sealer.hash(key), Date.now()), {
      taken: `There is already a key ${name}.`,
      missing: 'There is no such project.',
    });
  };
  return {
    keys: (projectId) =>
      sql
        .all<KeyRow>(
          `SELECT ${COLUMNS} FROM api_keys WHERE project_id = ? ORDER BY created_at, rowid`,
          projectId,
        )
        .map(keyOf),
    createKey(projectId, name) {
      const key = `brk_${randomBytes(KEY_BYTES).toString('base64url')}`;
      add(projectId, name, key);
      return secret(key);
    },
    importKey(projectId, name, key) {
      checkVisible('A key', key, { max: 1000 });
      if (!found(key)) add(projectId, name, key);
      const row = found(key);
      if (row?.project_id !== projectId) throw new SettingsError('The key is of another project.');
      return keyOf(row);
    },
    hasKey: (key) => found(key) !== undefined,
    ...changesOf(sql, sealer),
    projectOfKey(key) {
      const row = found(key);
      if (row?.is_enabled !== 1) return undefined;
      if (Date.now() - (row.last_used_at ?? 0) >= MINUTE_MS)
        sql.run('UPDATE api_keys SET last_used_at = ? WHERE id = ?', Date.now(), row.id);
      return row.project_id;
    },
  };
}

/** What is done to one key by its id. */
function changesOf(sql: Sql, sealer: Sealer): Pick<ApiKeys, 'revealKey' | 'setKeyEnabled' | 'deleteKey'> {
  return {
    revealKey(id) {
      const row = sql.get<{ sealed_key: Uint8Array<ArrayBuffer> }>(
        'SELECT sealed_key FROM api_keys WHERE id = ?',
        id,
      );
      if (!row) throw new SettingsError(MISSING.missing);
      return sealer.open(row.sealed_key, rowOf(id));
    },
    setKeyEnabled: (id, isEnabled) =>
      changeRow(
        () => sql.run('UPDATE api_keys SET is_enabled = ? WHERE id = ?', Number(isEnabled), id),
        MISSING,
      ),
    deleteKey: (id) => changeRow(() => sql.run('DELETE FROM api_keys WHERE id = ?', id), MISSING),
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
