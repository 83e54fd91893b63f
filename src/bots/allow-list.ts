import { Problem } from '../errors.ts';
import type { Bot } from './bot.ts';

/** A decoded path segment that every parser reads the same: no slash, escape, control or format character, no dot segment. */
const PLAIN_SEGMENT = /^(?!\.{1,2}$)[^/\\%\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,256}$/u;

/** What is logged of a bot that is not on the list: only what looks like a name, since the path may hold anything. */
const NAME = /^[\p{L}\p{N}._-]{1,64}$/u;

/** So many bots are remembered: with a pattern on the list, clients choose their names. */
const MAX_REMEMBERED = 1_000;

/** A route's decoded path parameters. */
export type PathParameters = Readonly<Record<string, string | string[] | undefined>>;

/**
 * Makes the function that finds the bot of a path. `patterns` are `namespace/bot` pairs; `*` stands for one whole
 * segment. The function throws Problem `unknown_bot` for a bot that is not on the list, whether it exists or not.
 */
export function allowList(patterns: readonly string[]): (parameters: PathParameters) => Bot {
  const exact = new Set(patterns);
  const known = new Map<string, Bot>();
  return function allowedBot({ namespace, botProviderName }) {
    // No segment of a known bot has a slash, so that no other path has its name.
    const name = `${namespace}/${botProviderName}`;
    const areTexts = typeof namespace === 'string' && typeof botProviderName === 'string';
    const before = areTexts ? known.get(name) : undefined;
    if (before) return before;
    const allowed =
      isPlain(namespace) &&
      isPlain(botProviderName) &&
      (exact.has(name) ||
        exact.has(`${namespace}/*`) ||
        exact.has(`*/${botProviderName}`) ||
        exact.has('*/*'));
    if (!allowed) throw unknownBot([namespace, botProviderName]);
    if (known.size >= MAX_REMEMBERED) known.clear();
    const bot = { namespace, botProviderName };
    known.set(name, bot);
    return bot;
  };
}

function unknownBot(segments: readonly PathParameters[string][]): Problem {
  const isName = segments.every((segment) => typeof segment === 'string' && NAME.test(segment));
  return new Problem('unknown_bot', 'There is no such bot here.', isName ? { bot: segments.join('/') } : {});
}

function isPlain(segment: string | string[] | undefined): segment is string {
  return typeof segment === 'string' && PLAIN_SEGMENT.test(segment);
}
