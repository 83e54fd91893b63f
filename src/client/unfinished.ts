import { baseOf } from './calls.ts';

/** What names a message at the relay. It says nothing of its text. */
export interface MessageName {
  readonly customChannelId: string;
  readonly customMessageId: string;
}

/** Where the names of messages under way are kept: `sessionStorage`, or something like it. */
export interface MessageStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/** The names of the messages whose answers have not ended, also of those that were sent before a reload. */
export interface Unfinished {
  readonly add: (name: MessageName) => void;
  readonly remove: (name: MessageName) => void;
  /** Those of this bot, in one conversation or in all, the oldest first. */
  readonly list: (customChannelId?: string) => MessageName[];
  /** Forgets those of all bots. */
  readonly clear: () => void;
}

interface UnfinishedOptions {
  readonly baseUrl: string;
  readonly namespace: string;
  readonly botProviderName: string;
  /** Null keeps nothing; by default, a page has its `sessionStorage`, and Node.js nothing. */
  readonly store?: MessageStore | null | undefined;
}

/** A bot, a conversation and the id of a message. */
type Kept = readonly [bot: string, customChannelId: string, customMessageId: string];

/** Undefined in Node.js. */
declare const document: unknown;
declare const sessionStorage: MessageStore;

const KEY = 'bot-relay-messages';
const MAX_NAMES = 20;

/** Opens the names of the bot's messages. What cannot be stored or read is not kept: nothing is thrown. */
export function unfinished(options: UnfinishedOptions): Unfinished {
  const { namespace, botProviderName } = options;
  const bot = `${baseOf(options)} ${namespace}/${botProviderName}`;
  /** Gives the store to `use`. */
  function withStore<T>(use: (store: MessageStore) => T): T | undefined {
    try {
      // A browser may throw at the name alone.
      const { store = typeof document === 'object' ? sessionStorage : null } = options;
      return store ? use(store) : undefined;
    } catch {
      return undefined;
    }
  }
  const all = () => withStore((store) => [...JSON.parse(store.getItem(KEY) ?? '[]')] as Kept[]) ?? [];
  const keep = (names: readonly Kept[]) =>
    withStore((store) =>
      names.length > 0 ? store.setItem(KEY, JSON.stringify(names)) : store.removeItem(KEY),
    );
  const kept = (name: MessageName): Kept => [bot, name.customChannelId, name.customMessageId];
  const others = (name: MessageName) => all().filter((one) => String(one) !== String(kept(name)));
  return {
    add: (name) => keep([...others(name), kept(name)].slice(-MAX_NAMES)),
    remove: (name) => keep(others(name)),
    list: (channel) =>
      all()
        .filter(([of, where]) => of === bot && where === (channel ?? where))
        .map(([, customChannelId, customMessageId]) => ({ customChannelId, customMessageId })),
    clear: () => keep([]),
  };
}

/** The name of the message with this body; undefined if it has none. */
export function nameOf(message: object): MessageName | undefined {
  const { customChannelId, customMessageId } = message as Partial<Record<string, unknown>>;
  if (typeof customChannelId !== 'string' || typeof customMessageId !== 'string') return undefined;
  return customChannelId && customMessageId ? { customChannelId, customMessageId } : undefined;
}
