import type { BotClient } from '../bot-client.ts';
import { partsOf } from '../client-parts.ts';
import { chatRows } from '../default-channel.ts';
import { followedSession } from '../followed-session.ts';
import { botKey } from '../unfinished.ts';

const MAX_CHATS = 50;
/** How long another tab may still write a list that it read before, in ms. */
const STALE_MS = 2_000;

/** A chat in the list of this browser. */
export interface Chat {
  readonly id: string;
  /** The first words of its first question; empty if that has only files. */
  readonly title: string;
  /** When its last message was sent, in ms since 1970. */
  readonly at: number;
}

/** The list that the browser keeps of the chats with the client's bot, for the user who is signed in. */
export function keptChats(client: BotClient) {
  const { options } = partsOf(client);
  const bot = botKey(options);
  const user = () => followedSession(client).getSnapshot().session?.user.id ?? '';
  const rows = () => chatRows(options, user());
  const isOwn = ([, its, one]: readonly unknown[]) => its === user() && one === bot;
  function set(chats: readonly Chat[]): void {
    const others = rows()
      .all()
      .filter((row) => !isOwn(row));
    const own = chats.map(({ at, id, title }) => [at, user(), bot, id, title] as const);
    rows().set([...others, ...own]);
  }
  /** The newest first. */
  const all = (): Chat[] =>
    rows()
      .all()
      .filter(isOwn)
      .map(([at, , , id = '', title = '']) => ({ at, id, title }))
      .sort((a, b) => b.at - a.at);
  const without = (id: string | undefined) => all().filter((one) => one.id !== id);
  const add = (chat: Chat) => set([chat, ...without(chat.id).slice(0, MAX_CHATS - 1)]);
  let removed: string | undefined;
  return {
    user,
    all,
    put(chat: Chat): void {
      const owner = user();
      const { id } = chat;
      add(chat);
      if (removed === id) removed = undefined;
      // Two tabs may write at once: then the list of the later one lacks this chat.
      const addAgain = ({ newValue }: StorageEvent) => {
        // Where nothing is left, all was forgotten.
        if (newValue && user() === owner && removed !== id && all().every((one) => one.id !== id)) add(chat);
      };
      addEventListener('storage', addAgain, { signal: AbortSignal.timeout(STALE_MS) });
    },
    remove(id: string | undefined): void {
      removed = id;
      set(without(id));
    },
  };
}
