import type { Secret } from '../secret.ts';

/** What can be set for one bot, or for all bots of a pattern. */
export interface OwnSettings {
  /** Tried in order; these bots never see a key that is not theirs. */
  readonly keys?: readonly Secret[];
  /** Messages in one `RATE_WINDOW_MS`. */
  readonly rateLimit?: number;
}

/** What is set for bots, and may change while the relay runs. */
export interface BotSettings {
  /** The keys of all bots that have none of their own, in the order in which they are tried. */
  readonly apiKeys: readonly Secret[];
  /** By `namespace/bot`, where `*` may stand for one whole segment. */
  readonly own: Readonly<Record<string, OwnSettings>>;
}

/** The fingerprints of all keys, each once. */
export function fingerprints({ apiKeys, own }: BotSettings): readonly string[] {
  const keys = [...apiKeys, ...Object.values(own).flatMap((settings) => settings.keys ?? [])];
  return [...new Set(keys.map(({ fingerprint }) => fingerprint))];
}

/** The patterns that fit a bot, the most specific first; of a pattern, those that fit whatever fits it. */
export function patternsFor(bot: string): readonly string[] {
  const [namespace = '', name = ''] = bot.split('/');
  const patterns = [bot, `${namespace}/*`, `*/${name}`, '*/*'];
  // Asked several times for each message, of which none goes to a pattern.
  return bot.includes('*') ? [...new Set(patterns)] : patterns;
}

/** Whether there can be a bot that fits both patterns. */
export function overlap(one: string, other: string): boolean {
  const segments = other.split('/');
  return one
    .split('/')
    .every((segment, i) => segment === '*' || segments[i] === '*' || segment === segments[i]);
}

/** The keys of a bot: its own, by the most specific pattern that has keys, or else those of all. */
export function keysOf({ apiKeys, own }: BotSettings, bot: string): readonly Secret[] {
  return firstOf(bot, (pattern) => own[pattern]?.keys) ?? apiKeys;
}

/**
 * The rate limit of an endpoint of a bot, named `namespace/bot` for its messages and `namespace/bot/operation` for
 * another: the bot's own, by the most specific pattern that has one; `undefined` if there is none.
 */
export function rateLimitOf({ own }: BotSettings, endpoint: string): number | undefined {
  const bot = endpoint.split('/', 2).join('/');
  return firstOf(bot, (pattern) => own[pattern]?.rateLimit);
}

function firstOf<T>(bot: string, setting: (pattern: string) => T | undefined): T | undefined {
  for (const pattern of patternsFor(bot)) {
    const value = setting(pattern);
    if (value !== undefined) return value;
  }
  return undefined;
}
