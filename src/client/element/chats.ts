import { botConversation } from '../channel/bot-conversation.ts';
import { freshId } from '../channel/channel-opening.ts';
import { oncePerFrame, textOf } from '../channel/channel-state.ts';
import type { Channel, ChannelSnapshot } from '../channel/channel-types.ts';
import { createChannel } from '../channel/create-channel.ts';
import { defaultChannels } from '../channel/default-channel.ts';
import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { followedSession } from '../session/followed-session.ts';
import { relayClient } from '../session/relay-client.ts';
import { type Chat, keptChats } from './kept-chats.ts';
import { plainTitle } from './plain-title.ts';

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
  /** Puts the open chat into the list if something was said in it, and asks the bot service once for its title. */
  readonly note: (snapshot: ChannelSnapshot) => void;
  /** Gives a chat another title. */
  readonly rename: (id: string, title: string) => void;
  /**
   * Has the bot service forget a chat, and takes it off the list. Returns false if the user has left meanwhile.
   * @throws RelayError
   */
  readonly forget: (id: string) => Promise<boolean>;
  /** Adds a listener that is called when the list changes; the returned function removes it. */
  readonly subscribe: (listener: () => void) => () => void;
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
  const { channel, go, current, tell, first } = switchable(client);
  const list = keptChats(client);
  const { user, all } = list;
  const keep = (id: string) => user() && defaultChannels(options).choose(user(), id);
  // While it is not known who is signed in, it is for whoever that will be.
  const channelOf = (id: string) =>
    id === first.id
      ? first
      : createChannel(client, { id, whileBusy: 'queue', expert: { user: user() || undefined } });
  function open(id: string): void {
    if (id === channel.id) return;
    keep(id);
    noteNext(current());
    go(channelOf(id));
    // A channel whose session is not known tells its listeners itself when it is.
    if (channel.getSnapshot().session) tell();
  }
  const { noteIn, noteNext, noteAgain } = noting(client, list);
  return {
    channel,
    all,
    keep: () => channel.id && keep(channel.id),
    open,
    begin: () => open(freshId()),
    note: (snapshot) => noteIn(current(), snapshot),
    rename(id, title) {
      const chat = all().find((one) => one.id === id);
      if (chat) list.put({ ...chat, title, isRenamed: true });
    },
    async forget(id) {
      const its = channelOf(id);
      if (await its.reset()) {
        list.remove(id);
        noteAgain();
        return true;
      }
      const { error } = its.getSnapshot();
      if (error) throw error;
      return false;
    },
    subscribe: list.subscribe,
  };
}

/**
 * Makes three functions: `noteIn` puts a chat into the list, `noteNext` does so in its next frame, and after `noteAgain`
 * the next `noteIn` puts it there once more.
 */
function noting(client: BotClient, { user, all, put }: ReturnType<typeof keptChats>) {
  /** The chat that was put into the list last, and how many messages it had. */
  let noted = '';
  /** The chats for whose titles the bot service was asked. */
  const asked = new Set<string>();
  const find = (id: string) => all().find((one) => one.id === id);
  async function askTitle(id: string): Promise<void> {
    if (asked.has(id)) return;
    asked.add(id);
    const owner = user();
    // Without an answer, the first words of its first question stay.
    const metadata = await botConversation(client, id)
      .metadata()
      .catch(() => undefined);
    const chat = user() === owner ? find(id) : undefined;
    const title = plainTitle(metadata?.title ?? '');
    if (chat && !chat.isRenamed && title && title !== chat.title) put({ ...chat, title });
  }
  function noteIn({ id = '' }: Channel, { session, messages, isLoading }: ChannelSnapshot): void {
    const question = messages.find(({ role }) => role === 'user');
    // The list is that of the user who is signed in now, and the snapshot may be of the one before.
    if (session?.user.id !== user() || !question || isLoading) return;
    const last = messages.at(-1);
    // That of the last question: an answer of the history has the time of its end, and one of this page that of its beginning.
    const { metadata } = messages.filter(({ role }) => role === 'user').at(-1) ?? question;
    const key = `${id} ${messages.length}`;
    if (key !== noted) {
      noted = key;
      const before = find(id);
      const title = before?.title || plainTitle(textOf(question));
      put({ ...before, id, title, at: metadata.createdAt ?? before?.at ?? Date.now() });
    }
    // A run that goes on has no title yet.
    if (last?.state === 'done') void askTitle(id);
  }
  return {
    noteIn,
    /**
     * For a chat that is left: what was said in it a moment ago is in its next frame. If nothing was, it is not put there:
     * another tab may have forgotten it.
     */
    noteNext(left: Channel): void {
      const { messages } = left.getSnapshot();
      oncePerFrame(() => {
        const next = left.getSnapshot();
        if (next.messages !== messages) noteIn(left, next);
      })();
    },
    noteAgain(): void {
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
  return { first, go, tell, current: () => now, channel: new Proxy(first, { get }) };
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
