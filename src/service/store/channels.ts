import { type Database, openDatabase } from '../settings/database.ts';
import type { ChannelBounds } from './channel.ts';
import { channelTable } from './channel-table.ts';
import { SHUT_DOWN } from './run.ts';
import { endInterruptedRuns } from './run-rows.ts';

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

export interface ChannelsOptions {
  /** For how many days a channel is kept after it was last used. */
  readonly keepDays: number;
  /** Whether the database is a file, and not in memory. */
  readonly isFile: boolean;
  /** Called with the number of each channel that is forgotten. */
  readonly onGone: (key: number) => void;
}

/** The conversations of all bots. */
export type Channels = ReturnType<typeof openChannels>;

/** Opens the conversations in a database. Runs that were under way when the service stopped are ended. */
export function openChannels(database: Database, { keepDays, isFile, onGone }: ChannelsOptions) {
  const named = channelTable({ database, bounds: isFile ? IN_FILE : IN_MEMORY, onGone });
  endInterruptedRuns(database);
  const forget = () => named.deleteUnused(keepDays * DAY_MS);
  forget();
  const timer = setInterval(forget, HOUR_MS).unref();
  const nameless = namelessChannels();
  return {
    ...named,
    ...nameless,
    transaction: <T>(act: () => T) => database.transaction(act),
    /** Interrupts all runs. */
    close() {
      clearInterval(timer);
      named.stop(SHUT_DOWN);
      nameless.stop(SHUT_DOWN);
    },
  };
}

const NOBODY = { projectId: 'nobody', endpoint: '' };

/** Channels that only the ids of their messages name, for messages without `customChannelId`: always in memory. */
function namelessChannels() {
  const database = openDatabase();
  database.run("INSERT INTO projects (id, name, created_at) VALUES (?, '', 0)", NOBODY.projectId);
  const all = channelTable({ database, bounds: IN_MEMORY, idOf: ({ id }, sequence) => `${id}.${sequence}` });
  const fresh = () => {
    all.deleteUnused(NAMELESS_MAX_AGE_MS);
    return all;
  };
  return {
    makeNameless: (runId: string) => fresh().findOrMake(NOBODY, runId),
    findNameless: (runId: string) => fresh().find(NOBODY, runId),
    stop: all.stop,
  };
}
