import { boundedMap } from './bounded-map.ts';
import { type Channel, newChannel } from './channel.ts';

const MAX_CHANNELS = 200;
const MAX_AGE_MS = 24 * 60 * 60 * 1000;
/** For how long the run of a message without a channel can be resumed. */
const NAMELESS_MAX_AGE_MS = 10 * 60 * 1000;

/** The conversations of all bots. What was not used for a day is forgotten, and so are the oldest of too many. */
export interface Channels {
  find(endpoint: string, id: string): Channel | undefined;
  /** The channel with this id; made if there is none. */
  findOrMake(endpoint: string, id: string): Channel;
  /** Ends the runs of a channel and forgets it; returns whether there was one. */
  delete(endpoint: string, id: string): boolean;
  /** Forgets all that a channel holds. Its numbers go on, so that no old `Last-Event-ID` names a new message. */
  clear(endpoint: string, id: string): boolean;
  /** A channel that only the ids of its messages name: for a message without `customChannelId`. */
  makeNameless(runId: string): Channel;
  findNameless(runId: string): Channel | undefined;
  /** Ends all runs. */
  close(): void;
}

/** `onGone` is called with every channel that is forgotten. */
export function channels(onGone: (channel: Channel) => void = () => {}): Channels {
  const leave = (channel: Channel) => {
    channel.suspend();
    onGone(channel);
  };
  const named = boundedMap<Channel>({ maxEntries: MAX_CHANNELS, maxAgeMs: MAX_AGE_MS, onLeave: leave });
  const nameless = boundedMap<Channel>({
    maxEntries: MAX_CHANNELS,
    maxAgeMs: NAMELESS_MAX_AGE_MS,
    onLeave: leave,
  });
  const keyOf = (endpoint: string, id: string) => `${endpoint} ${id}`;
  return {
    find: (endpoint, id) => named.get(keyOf(endpoint, id)),
    findOrMake(endpoint, id) {
      const key = keyOf(endpoint, id);
      const found = named.get(key) ?? newChannel(id);
      named.set(key, found);
      return found;
    },
    delete: (endpoint, id) => named.delete(keyOf(endpoint, id)),
    clear(endpoint, id) {
      const key = keyOf(endpoint, id);
      const found = named.get(key);
      if (found) named.set(key, newChannel(id, String, found.sequence));
      return found !== undefined;
    },
    makeNameless(runId) {
      const channel = newChannel('', (sequence) => `${runId}.${sequence}`);
      nameless.set(runId, channel);
      return channel;
    },
    findNameless: (runId) => nameless.get(runId),
    close() {
      for (const channel of [...named.values(), ...nameless.values()]) leave(channel);
    },
  };
}
