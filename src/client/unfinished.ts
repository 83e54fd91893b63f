import { baseOf } from './calls.ts';
import { keptList, type MessageStore } from './kept.ts';

export type { MessageStore } from './kept.ts';

/** What names a message at the relay. It says nothing of its text. */
export interface MessageName {
  readonly customChannelId: string;
  readonly customMessageId: string;
}

/** The names of the messages whose answers have not ended, also of those that were sent before a reload. */
export interface Unfinished {
  readonly add: (name: MessageName) => void;
  readonly remove: (name: MessageName) => void;
  /** Those of this bot, in one conversation or in all, the oldest first. */
  readonly list: (customChannelId?: string) => MessageName[];
  /** Forgets those of all bots. */
  readonly clear: () => void;
  /** This user has signed in: forgets those of others. */
  readonly enter: (user: string) => void;
}

interface UnfinishedOptions {
  readonly baseUrl: string;
  readonly namespace: string;
  readonly botProviderName: string;
  /** Null keeps nothing; by default, a page has its `sessionStorage`, and Node.js nothing. */
  readonly store?: MessageStore | null | undefined;
}

/** What a bot is called in what the browser keeps. */
export function botKey(options: UnfinishedOptions): string {
  return `${baseOf(options)} ${options.namespace}/${options.botProviderName}`;
}

/** Opens the names of the bot's messages. */
export function unfinished(options: UnfinishedOptions): Unfinished {
  const bot = botKey(options);
  const { all, set } = keptList('bot-relay-messages', options);
  let user: string | null = null;
  const others = ({ customChannelId, customMessageId }: MessageName) =>
    all().filter(([, , ...name]) => String(name) !== String([bot, customChannelId, customMessageId]));
  return {
    add(name) {
      const row = [Date.now(), user, bot, name.customChannelId, name.customMessageId] as const;
      set([...others(name), row]);
    },
    remove: (name) => set(others(name)),
    list: (channel) =>
      all()
        .filter(([, , of, where]) => of === bot && where === (channel ?? where))
        .map(([, , , customChannelId = '', customMessageId = '']) => ({ customChannelId, customMessageId })),
    clear: () => set([]),
    enter(next) {
      user = next;
      const kept = all();
      const own = kept.filter(([, of]) => of === null || of === user);
      if (own.length < kept.length) set(own);
    },
  };
}

/** The name of the message with this body; undefined if it has none. */
export function nameOf(message: object): MessageName | undefined {
  const { customChannelId, customMessageId } = message as Partial<Record<string, unknown>>;
  if (typeof customChannelId !== 'string' || typeof customMessageId !== 'string') return undefined;
  return customChannelId && customMessageId ? { customChannelId, customMessageId } : undefined;
}
