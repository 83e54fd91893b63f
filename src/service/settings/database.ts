import { closeSync, openSync } from 'node:fs';
import { resolve } from 'node:path';
import { DatabaseSync, type SQLInputValue, type SQLOutputValue } from 'node:sqlite';
import { SettingsError } from './settings-error.ts';

/** How long a statement waits for another process that writes, in ms. */
const BUSY_MS = 5000;

/** The results of SQLite where a table does not allow a change (https://sqlite.org/rescode.html). */
const FOREIGN_KEY = 787;
const TAKEN: readonly unknown[] = [1555, 2067];

/** What made each version of the tables from the one before. Never changed once it is released; new ones are added. */
const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE projects (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, daily_cap INTEGER, created_at INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE namespaces (
    name TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE
  ) STRICT;
  CREATE TABLE bots (
    namespace TEXT NOT NULL REFERENCES namespaces ON DELETE CASCADE, name TEXT NOT NULL,
    title TEXT NOT NULL, instructions TEXT NOT NULL, suggestions TEXT NOT NULL, temperature REAL,
    tools TEXT NOT NULL, uses_knowledge INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
  ) STRICT;
  CREATE TABLE models (
    project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, role TEXT NOT NULL,
    kind TEXT NOT NULL, model TEXT NOT NULL, endpoint TEXT, deployment TEXT, api_version TEXT,
    window_characters INTEGER NOT NULL, sealed_key BLOB, key_hint TEXT NOT NULL,
    PRIMARY KEY (project_id, role)
  ) STRICT;
  CREATE TABLE api_keys (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, name TEXT NOT NULL,
    sealed_key BLOB NOT NULL, key_hash BLOB NOT NULL UNIQUE, is_enabled INTEGER NOT NULL,
    created_at INTEGER NOT NULL, last_used_at INTEGER,
    UNIQUE (project_id, name)
  ) STRICT;
  CREATE TABLE message_counts (
    project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, day TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (project_id, day)
  ) STRICT;
  CREATE TABLE console (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

  CREATE TABLE channels (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE,
    endpoint TEXT NOT NULL, custom_id TEXT NOT NULL, title TEXT,
    sequence INTEGER NOT NULL, allows_tools INTEGER NOT NULL, pending_consent TEXT,
    last_activity_at INTEGER NOT NULL, last_used_at INTEGER NOT NULL,
    UNIQUE (project_id, endpoint, custom_id)
  ) STRICT;
  CREATE INDEX channels_by_use ON channels (last_used_at);
  CREATE TABLE runs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    channel_id INTEGER NOT NULL REFERENCES channels ON DELETE CASCADE, started_at INTEGER NOT NULL,
    ended_at INTEGER, ended_after INTEGER, error_code TEXT, error_message TEXT
  ) STRICT;
  CREATE INDEX runs_by_channel ON runs (channel_id);
  CREATE TABLE kept (
    channel_id INTEGER NOT NULL REFERENCES channels ON DELETE CASCADE, sequence INTEGER NOT NULL,
    run_id TEXT NOT NULL, message_id TEXT, characters INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (channel_id, sequence)
  ) STRICT;
  CREATE TABLE turns (
    run_id TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE, characters INTEGER NOT NULL,
    messages TEXT NOT NULL
  ) STRICT;
  CREATE TABLE files (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    channel_id INTEGER NOT NULL REFERENCES channels ON DELETE CASCADE,
    name TEXT NOT NULL, type TEXT NOT NULL, size INTEGER NOT NULL, bytes BLOB NOT NULL
  ) STRICT;
  CREATE INDEX files_by_channel ON files (channel_id);
  CREATE INDEX files_by_size ON files (size);

  CREATE TABLE documents (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, name TEXT NOT NULL,
    revision INTEGER NOT NULL, indexed_revision INTEGER, indexed_at INTEGER, model TEXT, dimensions INTEGER,
    problem TEXT, text TEXT NOT NULL,
    UNIQUE (project_id, name)
  ) STRICT;
  CREATE TABLE pieces (
    id INTEGER PRIMARY KEY AUTOINCREMENT, document_id TEXT NOT NULL REFERENCES documents ON DELETE CASCADE,
    heading TEXT NOT NULL, vector BLOB NOT NULL, text TEXT NOT NULL
  ) STRICT;
  CREATE INDEX pieces_by_document ON pieces (document_id);
  CREATE TABLE knowledge_changes (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL UNIQUE REFERENCES projects ON DELETE CASCADE
  ) STRICT;
  `,
];

type Row = Record<string, SQLOutputValue>;

/** What to say if a change cannot be made: another row has the name, or the row (or what it belongs to) is not there. */
interface Sentences {
  readonly taken?: string;
  readonly missing: string;
  /** The setting that names what is missing. */
  readonly field?: string;
}

/** A database, with one call for a statement and the values of its parameters. */
export class Database extends DatabaseSync {
  all<One extends Row>(text: string, ...values: SQLInputValue[]): One[] {
    return this.prepare(text).all(...values) as One[];
  }

  get<One extends Row>(text: string, ...values: SQLInputValue[]): One | undefined {
    return this.prepare(text).get(...values) as One | undefined;
  }

  /** Returns how many rows it has changed. */
  run(text: string, ...values: SQLInputValue[]): number {
    return Number(this.prepare(text).run(...values).changes);
  }

  /** Makes a change, which must change a row. @throws SettingsError */
  change({ taken, missing, field }: Sentences, text: string, ...values: SQLInputValue[]): void {
    let changed = 0;
    try {
      changed = this.run(text, ...values);
    } catch (error) {
      const { errcode } = error as { readonly errcode?: unknown };
      if (taken !== undefined && TAKEN.includes(errcode)) throw new SettingsError(taken, 'name');
      if (errcode !== FOREIGN_KEY) throw error;
    }
    if (changed === 0) throw new SettingsError(missing, field);
  }

  /** Runs `act` as one transaction: all of what it writes, or nothing. It must not wait: others share the connection. */
  transaction<T>(act: () => T): T {
    this.exec('BEGIN IMMEDIATE');
    try {
      const result = act();
      this.exec('COMMIT');
      return result;
    } catch (error) {
      this.exec('ROLLBACK');
      throw error;
    }
  }
}

/**
 * Opens the service's database, in memory without a `path`, and brings its tables to this version's. A new file is
 * readable by its owner only.
 * @throws SettingsError if the file cannot be used, or is of a newer version
 */
export function openDatabase(path?: string): Database {
  let database: Database | undefined;
  try {
    database = new Database(path === undefined ? ':memory:' : privateFile(path), { timeout: BUSY_MS });
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON');
    migrate(database);
    return database;
  } catch (error) {
    database?.close();
    throw new SettingsError(`${path ?? 'The database'} cannot be used: ${(error as Error).message}`);
  }
}

/** Makes the file if there is none. Returns its absolute path, in which SQLite reads no name of its own. */
function privateFile(path: string): string {
  closeSync(openSync(path, 'a', 0o600));
  return resolve(path);
}

/** Runs the migrations that the database has not had, all or none. */
function migrate(database: Database): void {
  database.transaction(() => {
    const version = Number(database.get('PRAGMA user_version')?.user_version);
    if (version > MIGRATIONS.length)
      throw new Error(`it is of a newer bot-relay (its tables have version ${version})`);
    for (const migration of MIGRATIONS.slice(version)) database.exec(migration);
    database.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}
