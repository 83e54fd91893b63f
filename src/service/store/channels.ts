import type { DatabaseSync } from 'node:sqlite';
import { openDatabase, transaction } from '../settings/database.ts';
import type { Channel } from './channel.ts';
import { type ChannelBounds, type ChannelTable, channelTable } from './channel-table.ts';
import { SHUT_DOWN } from './run.ts';

/** For how long the run of a message without a channel can be resumed. */
const NAMELESS_MAX_AGE_MS = 10 * 60 * 1000;
const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;
const MB = 1024 * 1024;

const IN_MEMORY: ChannelBounds = {
  maxChannels: 200,
  maxFiles: 200,
  maxFileBytes: 96 * MB,
  maxTurnCharacters: 500_000,
  maxTurns: 500,
};
const IN_FILE: ChannelBounds = {
  maxChannels: 100_000,
  maxFiles: 100_000,
  maxFileBytes: 1024 * MB,
  maxTurnCharacters: 2_000_000,
  maxTurns: 500,
};

/** The conversations of all bots. */
export interface Channels
  extends Pick<ChannelTable, 'find' | 'findOrMake' | 'delete' | 'clear' | 'deleteOf'> {
  /** A channel that only the ids of its messages name: for a message without `customChannelId`. */
  makeNameless(runId: string): Channel;
  findNameless(runId: string): Channel | undefined;
  /** Runs `act`, all of whose writes are done, or none. It must not wait. */
  transaction<T>(act: () => T): T;
  /** Interrupts all runs. */
  close(): void;
}

export interface ChannelsOptions {
  /** For how many days a channel is kept after it was last used. */
  readonly keepDays: number;
  /** Whether the database is a file, and not in memory. */
  readonly isFile: boolean;
  /** Called with the number of each channel that is forgotten. */
  readonly onGone: (key: number) => void;
  /** Other bounds than the usual ones. */
  readonly bounds?: Partial<ChannelBounds> | undefined;
}

/** Opens the conversations in a database. Runs that were under way when the service stopped are ended. */
export function openChannels(
  database: DatabaseSync,
  { keepDays, isFile, onGone, bounds }: ChannelsOptions,
): Channels {
  const named = channelTable(database, {
    bounds: { ...(isFile ? IN_FILE : IN_MEMORY), ...bounds },
    idOf: (_channel, sequence) => String(sequence),
    onGone,
  });
  named.tables.runs.endInterrupted();
  const forget = () => named.deleteUnused(Date.now() - keepDays * DAY_MS);
  forget();
  const timer = setInterval(forget, HOUR_MS).unref();
  const nameless = namelessChannels();
  return {
    ...named,
    ...nameless,
    transaction: (act) => transaction(database, act),
    close() {
      clearInterval(timer);
      named.stop(SHUT_DOWN);
      nameless.stop(SHUT_DOWN);
    },
  };
}

const NOBODY = { projectId: 'nobody', endpoint: '' };

/** Channels without a name are always in memory. */
function namelessChannels() {
  const database = openDatabase();
  database.exec(`INSERT INTO projects (id, name, created_at) VALUES ('${NOBODY.projectId}', '', 0)`);
  const all = channelTable(database, {
    bounds: IN_MEMORY,
    idOf: ({ id }, sequence) => `${id}.${sequence}`,
    onGone: () => {},
  });
  const forget = () => all.deleteUnused(Date.now() - NAMELESS_MAX_AGE_MS);
  return {
    makeNameless(runId: string) {
      forget();
      return all.findOrMake(NOBODY, runId);
    },
    findNameless(runId: string) {
      forget();
      return all.find(NOBODY, runId);
    },
    stop: all.stop,
  };
}
