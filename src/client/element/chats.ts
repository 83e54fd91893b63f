import { freshId } from '../channel/channel-opening.ts';
import { textOf } from '../channel/channel-state.ts';
import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import { createChannel } from '../channel/create-channel.ts';
import { defaultChannels } from '../channel/default-channel.ts';
import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { followedSession } from '../session/followed-session.ts';
import { relayClient } from '../session/relay-client.ts';
import { type Chat, keptChats } from './kept-chats.ts';

const MAX_TITLE = 80;

/** The chats of this browser with one bot, those of the user who is signed in. */
export interface Chats {
  /** The channel of the chat that is open. It stays the same object when another chat is opened. */
  readonly channel: Channel;
  /** Opens a chat of the list. An answer in the chat before it goes on. */
  readonly open: (id: string) => void;
  /** Opens a new one. */
  readonly begin: () => void;
  /** The chats of the list, the newest first. */
  readonly all: () => readonly Chat[];
  /** Remembers the open chat, so that a reload opens it again. */
  readonly keep: () => void;
  /** Puts the open chat into the list if something was said in it. */
  readonly note: (snapshot: ChannelSnapshot) => void;
  /** Takes a chat off the list. If something is said in it later, it is in the list again. */
  readonly remove: (id: string | undefined) => void;
}

const known = new WeakMap<BotClient, Chats>();

/** The chats with the client's bot. They are the same for all elements of the page. */
export function chatsOf(client: BotClient): Chats {
  const chats = known.get(client) ?? newChats(client);
  known.set(client, chats);
  chats.keep();
  return chats;
}

function newChats(client: BotClient): Chats {
  const { options } = internalsOf(client);
  const { channel, go, tell, first } = switchable(client);
  const { user, all, put, remove } = keptChats(client);
  const keep = (id: string) => defaultChannels(options).choose(user(), id);
  let noted = '';
  function open(id: string): void {
    if (id === channel.id) return;
    keep(id);
    go(id === first.id ? first : createChannel(client, { id, whileBusy: 'queue', expert: { user: user() } }));
    // A channel whose session is not known tells its listeners itself when it is.
    if (channel.getSnapshot().session) tell();
  }
  return {
    channel,
    all,
    keep: () => user() && channel.id && keep(channel.id),
    open,
    begin: () => open(freshId()),
    note({ session, messages, isLoading }) {
      const question = messages.find(({ role }) => role === 'user');
      const { id = '' } = channel;
      const key = `${id} ${messages.length}`;
      if (!session || !question || isLoading || key === noted) return;
      noted = key;
      const before = all().find((one) => one.id === id);
      const title = before?.title ?? textOf(question).trim().replace(/\s+/g, ' ').slice(0, MAX_TITLE);
      put({ id, title, at: messages.at(-1)?.metadata.createdAt ?? before?.at ?? Date.now() });
    },
    remove(id) {
      remove(id);
      noted = '';
    },
  };
}

/** A channel that stands for another one after each `go`. Its listeners stay. When a user leaves, it is the default one. */
function switchable(client: BotClient) {
  const first = createChannel(client, { whileBusy: 'queue' });
  const ends = new Map<() => void, () => void>();
  let now = first;
  function go(next: Channel): void {
    now = next;
    for (const [listener, end] of ends) {
      ends.set(listener, next.subscribe(listener));
      end();
    }
  }
  function subscribe(listener: () => void): () => void {
    ends.set(listener, now.subscribe(listener));
    return () => {
      ends.get(listener)?.();
      ends.delete(listener);
    };
  }
  followedSession(client).onDrop(() => {
    now = first;
    // In a microtask, since only then the session of the user who has left is gone.
    queueMicrotask(() => go(first));
  });
  const get = (_: Channel, name: keyof Channel) => (name === 'subscribe' ? subscribe : now[name]);
  const tell = () => [...ends.keys()].forEach((listener) => void listener());
  return { first, go, tell, channel: new Proxy(first, { get }) };
}

const clients = new Map<string, BotClient>();

/**
 * The client of the bot `namespace/name` at the relay `base`. It is the same for all elements, so that one that was
 * removed and comes again goes on in the same channel.
 */
export function clientOf(base: string, bot: string): BotClient {
  const key = JSON.stringify([base, bot]);
  const [namespace = '', botProviderName = ''] = bot.split('/');
  const client = clients.get(key) ?? relayClient({ baseUrl: base, namespace, botProviderName });
  clients.set(key, client);
  return client;
}
