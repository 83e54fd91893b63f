import type { Secret } from '../secret.ts';
import type { OperationGroup } from './bot.ts';

/** What can be set for one bot, or for all bots of a pattern. */
export interface OwnSettings {
  /** The keys of these bots, in the order in which they are tried; no other key is used for them. */
  readonly keys?: readonly Secret[];
  /** Messages in one `RATE_WINDOW_MS`. */
  readonly rateLimit?: number;
  /** The groups of operations that are enabled. */
  readonly operations?: readonly OperationGroup[];
}

/** The settings of bots that may change while the relay runs. */
export interface BotSettings {
  /** The keys of all bots without keys of their own, in the order in which they are tried. */
  readonly apiKeys: readonly Secret[];
  /** By `namespace/bot`, where `*` may stand for one whole segment. */
  readonly own: Readonly<Record<string, OwnSettings>>;
}

/** The fingerprints of all keys, each once. */
export function fingerprints({ apiKeys, own }: BotSettings): readonly string[] {
  const keys = [...apiKeys, ...Object.values(own).flatMap((settings) => settings.keys ?? [])];
  return [...new Set(keys.map(({ fingerprint }) => fingerprint))];
}

/** The patterns that match a bot, the most specific first. For a pattern: those that match all that it matches. */
export function patternsFor(bot: string): readonly string[] {
  const [namespace = '', name = ''] = bot.split('/');
  const patterns = [bot, `${namespace}/*`, `*/${name}`, '*/*'];
  return [...new Set(patterns)];
}

/** Whether some bot can match both patterns. */
export function overlap(one: string, other: string): boolean {
  const segments = other.split('/');
  return one
    .split('/')
    .every((segment, i) => segment === '*' || segments[i] === '*' || segment === segments[i]);
}

/** The keys of a bot: those of the most specific pattern that has keys, or else `apiKeys`. */
export function keysOf({ apiKeys, own }: BotSettings, bot: string): readonly Secret[] {
  return firstOf(own, bot, ({ keys }) => keys) ?? apiKeys;
}

/**
 * The rate limit of an endpoint, which is named `namespace/bot` for messages and `namespace/bot/operation` for other
 * operations: that of the most specific pattern that has one; `undefined` if there is none.
 */
export function rateLimitOf({ own }: BotSettings, endpoint: string): number | undefined {
  const botEnd = endpoint.indexOf('/', endpoint.indexOf('/') + 1);
  const bot = botEnd < 0 ? endpoint : endpoint.slice(0, botEnd);
  return firstOf(own, bot, ({ rateLimit }) => rateLimit);
}

/** The groups of operations of a bot: those of the most specific pattern that has some; `undefined` if none has. */
export function groupsOf({ own }: BotSettings, bot: string): readonly OperationGroup[] | undefined {
  return firstOf(own, bot, ({ operations }) => operations);
}

type Own = BotSettings['own'];

function firstOf<T>(own: Own, bot: string, setting: (of: OwnSettings) => T | undefined): T | undefined {
  const matches = patternsFor(bot).flatMap((pattern) => own[pattern] ?? []);
  return matches.map(setting).find((value) => value !== undefined);
}
