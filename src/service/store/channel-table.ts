import { type Channel, type ChannelPlace, openChannel } from './channel.ts';
import { type ChannelName, liveRuns } from './live-runs.ts';

/** Whose channel is meant. */
export type ChannelOwner = Pick<ChannelName, 'projectId' | 'endpoint'>;

export interface ChannelTableOptions extends Omit<ChannelPlace, 'live'> {
  /** Called with the number of each channel that is forgotten. */
  readonly onGone?: (key: number) => void;
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

/**
 * The channels in a database, whose projects must be there. The one that was not used for the longest time is forgotten
 * if there are too many.
 */
export function channelTable({ onGone = () => {}, ...options }: ChannelTableOptions) {
  const { database, bounds } = options;
  const live = liveRuns();
  const place = { ...options, live };
  const gone = (keys: readonly Key[]) => {
    for (const { id } of keys) {
      live.stop(({ key }) => key === id);
      onGone(id);
    }
  };
  const find = ({ projectId, endpoint }: ChannelOwner, id: string): Channel | undefined => {
    const text = `UPDATE channels SET last_used_at = ? WHERE ${IS_ONE} RETURNING id`;
    const row = database.get<Key>(text, Date.now(), projectId, endpoint, id);
    return row && openChannel(place, { projectId, endpoint, id, key: row.id });
  };
  const make = ({ projectId, endpoint }: ChannelOwner, id: string, sequence = 0): Channel => {
    const now = Date.now();
    const row = database.get<Key>(MAKE, projectId, endpoint, id, sequence, now, now) as Key;
    gone(database.all<Key>(DELETE_OLDEST, bounds.maxChannels));
    return openChannel(place, { projectId, endpoint, id, key: row.id });
  };
  const remove = ({ projectId, endpoint }: ChannelOwner, id: string) => {
    const text = `DELETE FROM channels WHERE ${IS_ONE} RETURNING id, sequence`;
    const row = database.get<Key & { sequence: number }>(text, projectId, endpoint, id);
    if (row) gone([row]);
    return row;
  };
  return {
    find,
    /** The channel with this id; made if there is none. */
    findOrMake: (owner: ChannelOwner, id: string) => find(owner, id) ?? make(owner, id),
    /** Ends the runs of a channel and forgets it. */
    delete: (owner: ChannelOwner, id: string) => void remove(owner, id),
    /**
     * Ends the runs of a channel and forgets all that it holds. Its numbers go on, so that no old `Last-Event-ID` names a
     * new message. Returns the empty channel, if there was one.
     */
    clear(owner: ChannelOwner, id: string) {
      const row = remove(owner, id);
      return row && make(owner, id, row.sequence);
    },
    /** Ends the runs and forgets the channels of a project, or of a namespace or a bot in it. */
    deleteOf(projectId: string, namespace?: string, bot?: string) {
      const path = [namespace, bot].flatMap((part) => (part === undefined ? [] : [`${part}/`])).join('');
      // With their project, the channels are gone already.
      live.stop((one) => one.projectId === projectId && `${one.endpoint}/`.startsWith(path));
      const text = `DELETE FROM channels WHERE project_id = ? AND substr(endpoint || '/', 1, ?) = ? RETURNING id`;
      gone(database.all<Key>(text, projectId, path.length, path));
    },
    /** Forgets the channels that were not used for so many ms. */
    deleteUnused: (ageMs: number) =>
      gone(database.all<Key>('DELETE FROM channels WHERE last_used_at < ? RETURNING id', Date.now() - ageMs)),
    /** Stops all runs. */
    stop: (reason: symbol) => void live.stop(() => true, reason),
  };
}
