import type { DatabaseSync } from 'node:sqlite';
import { transaction } from '../settings/database.ts';
import type { Sql } from '../settings/sql.ts';
import type { FileTable, StoredFile, UploadedFile } from './files.ts';
import type { Kept, KeptTable, NewEvent } from './kept-events.ts';
import type { ChannelName, LiveRuns } from './live-runs.ts';
import type { Run } from './run.ts';
import type { EndedRun, RunFailure, RunTable } from './run-rows.ts';
import type { StoredTurn, TurnTable } from './turns.ts';

/** A tool call that waits for the user's consent. */
export interface PendingConsent {
  readonly processId: string;
  readonly pendingCalls: readonly PendingCall[];
}

export interface PendingCall {
  readonly toolCallId: string;
  readonly toolsetName: string;
  readonly toolName: string;
  readonly parameter: object;
  readonly alreadyAllowed: boolean;
}

export interface ChannelState {
  readonly title: string | undefined;
  readonly lastActivityAt: Date;
  readonly pendingConsent: PendingConsent | undefined;
  /** Whether the user has allowed the bot's tools for good. */
  readonly allowsTools: boolean;
}

/** Where the channels of one database keep what they hold. */
export interface ChannelTables {
  readonly database: DatabaseSync;
  readonly sql: Sql;
  readonly kept: KeptTable;
  readonly runs: RunTable;
  readonly turns: TurnTable;
  readonly files: FileTable;
  readonly live: LiveRuns;
  /** How the number of what a channel keeps is written into `id:`. */
  readonly idOf: (channel: ChannelName, sequence: number) => string;
}

type StateRow = {
  title: string | null;
  lastActivityAt: number;
  pendingConsent: string | null;
  allowsTools: number;
};

const STATE = `
  SELECT title, last_activity_at AS lastActivityAt, pending_consent AS pendingConsent, allows_tools AS allowsTools
  FROM channels WHERE id = ?`;

/**
 * One conversation with one bot. All is in the database, but for the runs that are under way. What is written after it
 * was deleted or cleared is lost.
 */
export class Channel implements ChannelName {
  readonly key: number;
  readonly projectId: string;
  readonly endpoint: string;
  readonly id: string;
  readonly #tables: ChannelTables;

  constructor(tables: ChannelTables, { key, projectId, endpoint, id }: ChannelName) {
    this.key = key;
    this.projectId = projectId;
    this.endpoint = endpoint;
    this.id = id;
    this.#tables = tables;
  }

  /** Runs `act`, all of whose writes into this channel are done, or none. It must not wait. */
  transaction<T>(act: () => T): T {
    return transaction(this.#tables.database, act);
  }

  state(): ChannelState {
    const row = this.#tables.sql.get<StateRow>(STATE, this.key);
    return {
      title: row?.title ?? undefined,
      lastActivityAt: new Date(row?.lastActivityAt ?? 0),
      pendingConsent: row?.pendingConsent ? (JSON.parse(row.pendingConsent) as PendingConsent) : undefined,
      allowsTools: row?.allowsTools === 1,
    };
  }

  /** Gives it a title, if it has none. */
  giveTitle(title: string): void {
    this.#tables.sql.run('UPDATE channels SET title = coalesce(title, ?) WHERE id = ?', title, this.key);
  }

  setPendingConsent(consent: PendingConsent | undefined): void {
    const text = consent ? JSON.stringify(consent) : null;
    this.#tables.sql.run('UPDATE channels SET pending_consent = ? WHERE id = ?', text, this.key);
  }

  /** The user allows the bot's tools for good. */
  allowTools(): void {
    this.#tables.sql.run('UPDATE channels SET allows_tools = 1 WHERE id = ?', this.key);
  }

  /** What was said, oldest first. */
  kept(): Kept[] {
    return this.#tables.kept.of(this.key);
  }

  /** Keeps an event of a run under the next number. Does nothing if the run is gone. */
  keep(event: NewEvent): Kept | undefined {
    return this.#tables.kept.keep(this.key, event, (sequence) => this.#tables.idOf(this, sequence));
  }

  /** What models remember of it. */
  turns(): StoredTurn[] {
    return this.#tables.turns.of(this.key);
  }

  /** Writes what a model remembers of a run, as a whole. Does nothing if the run is gone. */
  writeTurn(runId: string, turn: StoredTurn): void {
    this.#tables.turns.write(runId, turn);
  }

  beginRun(id: string): void {
    this.#tables.runs.begin(this.key, id);
  }

  /** Writes how a run ended. */
  endRun(id: string, failure?: RunFailure): void {
    this.#tables.runs.end(id, failure);
  }

  /** A run that has ended. */
  endedRun(id: string): EndedRun | undefined {
    return this.#tables.runs.find(this.key, id);
  }

  /** The run that began last. */
  lastRun(): EndedRun | undefined {
    return this.#tables.runs.last(this.key);
  }

  /** The runs that have failed, in the order of their ends. */
  failedRuns(): EndedRun[] {
    return this.#tables.runs.failed(this.key);
  }

  /** The runs that are under way. */
  liveRuns(): Run[] {
    return this.#tables.live.of(this);
  }

  /** A run that is under way, or has ended a short time ago. */
  findRun(id: string): Run | undefined {
    return this.#tables.live.find(this, id);
  }

  addLiveRun(run: Run): void {
    this.#tables.live.add(this, run);
  }

  /** Takes note that a run is under way no more. */
  removeLiveRun(run: Run): void {
    this.#tables.live.end(this, run);
  }

  /** Stops the runs that are under way, or the one with this id; returns whether there was one. */
  suspend(runId?: string): boolean {
    return this.#tables.live.stop(({ key }, { id }) => key === this.key && (runId ?? id) === id);
  }

  addFile(file: UploadedFile): StoredFile {
    return this.#tables.files.add(this.key, file);
  }

  findFile(id: string): StoredFile | undefined {
    return this.#tables.files.find(this.key, id);
  }

  /** The newest file with this name. */
  findFileByName(name: string): StoredFile | undefined {
    return this.#tables.files.findByName(this.key, name);
  }
}
