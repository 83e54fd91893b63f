import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { followedSession } from '../session/followed-session.ts';
import { botKey, DRAFTS, keptList } from '../session/kept.ts';

/** A longer text is not kept: it is written to the storage with each key. */
const LONGEST = 20_000;

/** The texts that the user who is signed in has written and not sent, in this tab, by the ids of the chats. */
export interface Drafts {
  /** Empty if there is none. */
  readonly of: (chat: string) => string;
  /** Keeps a text; an empty one is forgotten. */
  readonly keep: (chat: string, text: string) => void;
}

/** The drafts for the client's bot. */
export function keptDrafts(client: BotClient): Drafts {
  const { options } = internalsOf(client);
  const bot = botKey(options);
  const { all, set } = keptList(DRAFTS, options);
  const user = () => followedSession(client).getSnapshot().session?.user.id;
  const isOf = (chat: string, [, owner, itsBot, id]: ReturnType<typeof all>[number]) =>
    owner === user() && itsBot === bot && id === chat;
  return {
    of: (chat) => all().find((row) => isOf(chat, row))?.[4] ?? '',
    keep(chat, text) {
      const owner = user();
      if (owner === undefined) return;
      const others = all().filter((row) => !isOf(chat, row));
      const isKept = text !== '' && text.length <= LONGEST;
      set(isKept ? [...others, [Date.now(), owner, bot, chat, text]] : others);
    },
  };
}
