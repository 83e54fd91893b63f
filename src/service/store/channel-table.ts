import type { DatabaseSync } from 'node:sqlite';
import { sqlOf } from '../settings/sql.ts';
import { Channel, type ChannelTables } from './channel.ts';
import { type FileBounds, filesIn } from './files.ts';
import { keptIn } from './kept-events.ts';
import { type ChannelName, liveRuns } from './live-runs.ts';
import { runsIn } from './run-rows.ts';
import { type TurnBounds, turnsIn } from './turns.ts';

/** Whose channel is meant. */
export type ChannelOwner = Pick<ChannelName, 'projectId' | 'endpoint'>;

export interface ChannelBounds extends FileBounds, TurnBounds {
  readonly maxChannels: number;
}

export interface ChannelTableOptions {
  readonly bounds: ChannelBounds;
  readonly idOf: ChannelTables['idOf'];
  /** Called with the number of each channel that is forgotten. */
  readonly onGone: (key: number) => void;
}

/** The channels of one database. The one that was not used for the longest time is forgotten if there are too many. */
export interface ChannelTable {
  find(owner: ChannelOwner, id: string): Channel | undefined;
  /** The channel with this id; made if there is none. */
  findOrMake(owner: ChannelOwner, id: string): Channel;
  /** Ends the runs of a channel and forgets it; returns whether there was one. */
  delete(owner: ChannelOwner, id: string): boolean;
  /**
   * Ends the runs of a channel and forgets all that it holds. Its numbers go on, so that no old `Last-Event-ID` names a
   * new message. Returns the empty channel, if there was one.
   */
  clear(owner: ChannelOwner, id: string): Channel | undefined;
  /** Ends the runs and forgets the channels of a project, or of a namespace or a bot in it. */
  deleteOf(projectId: string, namespace?: string, bot?: string): void;
  /** Forgets the channels that were last used before this time, in ms. */
  deleteUnused(before: number): void;
  /** Stops all runs. */
  stop(reason: symbol): void;
  readonly tables: ChannelTables;
}

const IS_ONE = 'project_id = ? AND endpoint = ? AND custom_id = ?';
const MAKE = `
  INSERT INTO channels (project_id, endpoint, custom_id, sequence, allows_tools, last_activity_at, last_used_at)
  VALUES (?, ?, ?, ?, 0, ?, ?) RETURNING id`;
const DELETE_OLDEST = `
  DELETE FROM channels WHERE id IN (
    SELECT id FROM channels ORDER BY last_used_at DESC, id DESC LIMIT -1 OFFSET ?
  ) RETURNING id`;

type Key = { id: number };

/** The channels in a database, whose projects must be there. */
export function channelTable(
  database: DatabaseSync,
  { bounds, idOf, onGone }: ChannelTableOptions,
): ChannelTable {
  const sql = sqlOf(database);
  const live = liveRuns();
  const parts = { kept: keptIn(sql), runs: runsIn(sql), files: filesIn(sql, bounds) };
  const turns = turnsIn(sql, bounds);
  const tables: ChannelTables = { database, sql, ...parts, turns, live, idOf };
  const gone = (keys: readonly Key[]) => {
    for (const { id } of keys) {
      live.stop(({ key }) => key === id);
      onGone(id);
    }
  };
  const channel = ({ projectId, endpoint }: ChannelOwner, id: string, key: number) =>
    new Channel(tables, { projectId, endpoint, id, key });
  const find: ChannelTable['find'] = (owner, id) => {
    const now = Date.now();
    const row = sql.get<Key>(
      `UPDATE channels SET last_used_at = ? WHERE ${IS_ONE} RETURNING id`,
      ...[now, owner.projectId, owner.endpoint, id],
    );
    return row && channel(owner, id, row.id);
  };
  const make = (owner: ChannelOwner, id: string, sequence: number) => {
    const now = Date.now();
    const row = sql.get<Key>(MAKE, owner.projectId, owner.endpoint, id, sequence, now, now) as Key;
    gone(sql.all<Key>(DELETE_OLDEST, bounds.maxChannels));
    return channel(owner, id, row.id);
  };
  const remove = ({ projectId, endpoint }: ChannelOwner, id: string) => {
    const text = `DELETE FROM channels WHERE ${IS_ONE} RETURNING id, sequence`;
    const row = sql.get<Key & { sequence: number }>(text, projectId, endpoint, id);
    if (row) gone([row]);
    return row;
  };
  return {
    tables,
    find,
    findOrMake: (owner, id) => find(owner, id) ?? make(owner, id, 0),
    delete: (owner, id) => remove(owner, id) !== undefined,
    clear(owner, id) {
      const row = remove(owner, id);
      return row && make(owner, id, row.sequence);
    },
    deleteOf(projectId, namespace, bot) {
      const path = [namespace, bot].flatMap((part) => (part === undefined ? [] : [`${part}/`])).join('');
      // With their project, the channels are gone already.
      live.stop((one) => one.projectId === projectId && `${one.endpoint}/`.startsWith(path));
      const text = `DELETE FROM channels WHERE project_id = ? AND substr(endpoint || '/', 1, ?) = ? RETURNING id`;
      gone(sql.all<Key>(text, projectId, path.length, path));
    },
    deleteUnused: (before) =>
      gone(sql.all<Key>('DELETE FROM channels WHERE last_used_at < ? RETURNING id', before)),
    stop: (reason) => void live.stop(() => true, reason),
  };
}
