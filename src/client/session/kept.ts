import { baseOf } from '../transport/calls.ts';

/** Where the browser keeps something: `sessionStorage`, or something like it. */
export interface IdStorage {
  /** The text that is kept under `key`; null if there is none. */
  getItem(key: string): string | null;
  /** Keeps a text under `key`. */
  setItem(key: string, value: string): void;
  /** Removes what is kept under `key`. */
  removeItem(key: string): void;
}

/** Undefined in Node.js. */
declare const document: unknown;
declare const localStorage: IdStorage;
declare const sessionStorage: IdStorage;

/** How long a row is kept, in ms. */
const LONGEST_MS = 30 * 24 * 3_600_000;
const MAX_ROWS = 20;

/** One row: when it was kept, in ms since 1970, the id of its user if that is known, and its names, such as the bot. */
export type Row = readonly [at: number, user: string | null, ...names: string[]];

/** A list that the browser keeps, the oldest row first. If it cannot be stored or read, it is empty: nothing is thrown. */
export interface KeptList {
  /** The rows of the last 30 days. Older ones are removed. */
  readonly all: () => Row[];
  readonly set: (rows: readonly Row[]) => void;
}

/** Where a list is kept. */
export interface KeptOptions {
  /** In place of the browser's own; null keeps nothing, which is the default in Node.js. */
  readonly ids?: IdStorage | null | undefined;
  /** Whether all tabs share the list, also later ones. */
  readonly isShared?: boolean;
  /** How many rows are kept, 20 by default: the newest. */
  readonly max?: number;
}

/** The list that is kept under `key`. */
export function keptList(key: string, { ids, isShared, max = MAX_ROWS }: KeptOptions): KeptList {
  function withStore<T>(use: (storage: IdStorage) => T): T | undefined {
    try {
      // A browser may throw an error at the name of the storage.
      const own = () => (isShared ? localStorage : sessionStorage);
      const storage = ids === undefined && typeof document === 'object' ? own() : ids;
      return storage ? use(storage) : undefined;
    } catch {
      return undefined;
    }
  }
  const set = (rows: readonly Row[]) =>
    withStore((storage) =>
      rows.length > 0 ? storage.setItem(key, JSON.stringify(rows.slice(-max))) : storage.removeItem(key),
    );
  return {
    all() {
      const read = (storage: IdStorage) => [...JSON.parse(storage.getItem(key) ?? '[]')].filter(isRow);
      const rows = withStore(read) ?? [];
      const kept = rows.filter(([at]) => at > Date.now() - LONGEST_MS);
      if (kept.length < rows.length) set(kept);
      return kept;
    },
    set,
  };
}

function isRow(row: unknown): row is Row {
  return Array.isArray(row) && row.slice(2).every((name) => typeof name === 'string');
}

/** The keys of the lists: default channels, chats, drafts, and messages under way. The first name in a row is the bot. */
export const CHANNELS = 'bot-relay-channels';
export const CHATS = 'bot-relay-chats';
export const DRAFTS = 'bot-relay-drafts';
export const MESSAGES = 'bot-relay-messages';

/** Where lists are kept, and of which relay. */
export type KeptOfRelay = KeptOptions & { readonly baseUrl: string };

/** Forgets what the browser keeps for the users of this relay. What is kept for a user that `stays` accepts, stays. */
export function forgetKept(
  options: KeptOfRelay,
  stays: (user: string | null) => boolean = () => false,
): void {
  const relay = `${baseOf(options)} `;
  for (const key of [CHANNELS, CHATS, DRAFTS, MESSAGES])
    for (const isShared of [false, true]) {
      const { all, set } = keptList(key, { ...options, isShared, max: Infinity });
      const rows = all();
      const own = rows.filter(([, user, bot = '']) => stays(user) || !bot.startsWith(relay));
      if (own.length < rows.length) set(own);
    }
}

interface BotOptions extends KeptOptions {
  readonly baseUrl: string;
  readonly namespace: string;
  readonly botProviderName: string;
}

/** The name of a bot in the rows. */
export function botKey(options: BotOptions): string {
  return `${baseOf(options)} ${options.namespace}/${options.botProviderName}`;
}
