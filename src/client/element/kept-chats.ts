import { chatRows } from '../channel/default-channel.ts';
import type { BotClient } from '../session/bot-client.ts';
import { internalsOf } from '../session/client-internals.ts';
import { followedSession } from '../session/followed-session.ts';
import { botKey, CHATS, type Row } from '../session/kept.ts';

const MAX_CHATS = 50;
/** How long another tab may take from reading the list to writing it, in ms. */
const STALE_MS = 2_000;
/** How long the list keeps that a chat was removed, in ms: no tab may write it again meanwhile. */
const REMOVED_MS = 60_000;

/** A chat in the list of this browser. */
export interface Chat {
  readonly id: string;
  /** What it is called; empty if nothing is known but files. */
  readonly title: string;
  /** Whether the user has given it its title. */
  readonly isRenamed?: boolean;
  /** When its last message was sent, in ms since 1970. */
  readonly at: number;
}

/** Ends the row of a chat that the user has renamed. */
const RENAMED = 'renamed';

/** The list that the browser keeps of the chats with the client's bot, for the user who is signed in. */
export function keptChats(client: BotClient) {
  const { options } = internalsOf(client);
  const bot = botKey(options);
  const { tell, subscribe } = changes();
  const user = () => followedSession(client).getSnapshot().session?.user.id ?? '';
  const rows = () => chatRows(options, user());
  const isOwn = ([, owner, itsBot]: Row) => owner === user() && itsBot === bot;
  /** The rows of this user and bot, the newest first. */
  const own = () =>
    rows()
      .all()
      .filter((row) => isOwn(row) && isCurrent(row))
      .sort(([one], [other]) => other - one);
  const forgetRemoved = () => rows().set(rows().all().filter(isCurrent));
  /** The list with this chat as the newest one. The oldest are left out if there are too many. */
  function withChat(id: string, at: number, title: readonly string[]): Row[] {
    const others = rows()
      .all()
      .filter((row) => !isOwn(row));
    const rest = own().filter(([, , , one]) => one !== id);
    const [chats, removed] = [rest.filter(isChat), rest.filter((row) => !isChat(row))];
    const kept = [...chats.slice(0, MAX_CHATS - 1), ...removed.slice(0, MAX_CHATS)];
    return [...others, [at, user(), bot, id, ...title], ...kept];
  }
  function keep(id: string, at: number, ...title: readonly string[]): void {
    const owner = user();
    const write = () => rows().set(withChat(id, at, title));
    write();
    // Another tab may write a list that it read before this change.
    const writeAgain = ({ newValue }: StorageEvent) => {
      const isThere = () => own().some(([since, , , one]) => one === id && since >= at);
      // An empty list was forgotten on purpose.
      if (!newValue || user() !== owner || isThere()) return;
      write();
      tell();
    };
    addEventListener('storage', writeAgain, { signal: AbortSignal.timeout(STALE_MS) });
  }
  return {
    user,
    /** The chats of the list, the newest first. */
    all: (): Chat[] =>
      own().flatMap(([at, , , id = '', title, mark]) =>
        title === undefined ? [] : { at, id, title, isRenamed: mark === RENAMED },
      ),
    put({ id, title, at, isRenamed }: Chat): void {
      keep(id, at, title, ...(isRenamed ? [RENAMED] : []));
      tell();
    },
    remove(id: string): void {
      keep(id, Date.now());
      setTimeout(forgetRemoved, REMOVED_MS);
      tell();
    },
    subscribe,
  };
}

/** Who is told when the list changes, here or in another tab. */
function changes() {
  const listeners = new Set<() => void>();
  const tell = () => [...listeners].forEach((listener) => void listener());
  addEventListener('storage', ({ key }) => {
    if (key === CHATS || key === null) tell();
  });
  return {
    tell,
    subscribe(listener: () => void): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** Whether a row is a chat. The row of a chat that was removed has no title. */
function isChat([, , , , title]: Row): boolean {
  return title !== undefined;
}

/** Whether a row still counts. */
function isCurrent(row: Row): boolean {
  return isChat(row) || row[0] > Date.now() - REMOVED_MS;
}
