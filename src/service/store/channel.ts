import type { Database } from '../settings/database.ts';
import { type FileBounds, filesOf } from './files.ts';
import { keptEvents } from './kept-events.ts';
import type { ChannelName, LiveRuns } from './live-runs.ts';
import { runRows } from './run-rows.ts';
import { type TurnBounds, turnsOf } from './turns.ts';

/** Tool calls that wait for the user's consent. */
export interface PendingConsent {
  readonly processId: string;
  readonly pendingCalls: readonly {
    readonly toolCallId: string;
    readonly toolsetName: string;
    readonly toolName: string;
    readonly parameter: object;
    readonly alreadyAllowed: boolean;
  }[];
}

export interface ChannelBounds extends FileBounds, TurnBounds {
  readonly maxChannels: number;
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

/** Where channels are kept. */
export interface ChannelPlace {
  readonly database: Database;
  readonly live: LiveRuns;
  readonly bounds: ChannelBounds;
  /** How the number of what a channel keeps is written into `id:`; as it is, if not given. */
  readonly idOf?: (channel: ChannelName, sequence: number) => string;
}

export type Channel = ReturnType<typeof openChannel>;

/**
 * One conversation with one bot. All is in the database, but for the runs that are under way. What is written after it
 * was deleted or cleared is lost.
 */
export function openChannel({ database, live, bounds, idOf }: ChannelPlace, name: ChannelName) {
  const { key } = name;
  return {
    ...name,
    /** What was said. */
    kept: keptEvents(database, key, idOf && ((sequence) => idOf(name, sequence))),
    /** What models remember. */
    turns: turnsOf(database, key, bounds),
    files: filesOf(database, key, bounds),
    /** How its runs ended. */
    runs: runRows(database, key),
    /** Its runs that are under way. */
    live: live.ofChannel(name),
    transaction: <T>(act: () => T) => database.transaction(act),
    state() {
      const row = database.get<StateRow>(STATE, key);
      return {
        title: row?.title ?? undefined,
        lastActivityAt: new Date(row?.lastActivityAt ?? 0),
        pendingConsent: row?.pendingConsent ? (JSON.parse(row.pendingConsent) as PendingConsent) : undefined,
        /** Whether the user has allowed the bot's tools for good. */
        allowsTools: row?.allowsTools === 1,
      };
    },
    /** Gives it a title, if it has none. */
    giveTitle: (title: string) =>
      database.run('UPDATE channels SET title = coalesce(title, ?) WHERE id = ?', title, key),
    setPendingConsent(consent: PendingConsent | undefined) {
      const text = consent ? JSON.stringify(consent) : null;
      database.run('UPDATE channels SET pending_consent = ? WHERE id = ?', text, key);
    },
    /** The user allows the bot's tools for good. */
    allowTools: () => database.run('UPDATE channels SET allows_tools = 1 WHERE id = ?', key),
  };
}
