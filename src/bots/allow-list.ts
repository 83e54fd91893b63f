import { Problem } from '../errors.ts';
import type { Bot } from './bot.ts';

/**
 * A decoded path segment that every parser reads the same: no slash, escape, control or format character, no dot
 * segment.
 */
const PLAIN_SEGMENT = /^(?!\.{1,2}$)[^/\\%\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,256}$/u;

/** What is logged of a bot that is not on the list: only what looks like a name, since the path may hold anything. */
const NAME = /^[\p{L}\p{N}._-]{1,64}$/u;

/** A route's decoded path parameters. */
export type PathParameters = Readonly<Record<string, string | string[] | undefined>>;

/**
 * Makes the function that finds the bot of a path. `patterns` are `namespace/bot` pairs; `*` stands for one whole
 * segment. The function throws Problem `unknown_bot` for a bot that is not on the list, whether it exists or not.
 */
export function allowList(patterns: readonly string[]): (parameters: PathParameters) => Bot {
  const exact = new Set(patterns);
  return function allowedBot({ namespace, botProviderName }) {
    const allowed =
      isPlain(namespace) &&
      isPlain(botProviderName) &&
      (exact.has(`${namespace}/${botProviderName}`) ||
        exact.has(`${namespace}/*`) ||
        exact.has(`*/${botProviderName}`) ||
        exact.has('*/*'));
    if (!allowed) throw new Problem('unknown_bot', 'There is no such bot here.');
    return { namespace, botProviderName };
  };
}

/** The bot of a path for the log, whether it is on the list or not; undefined if it does not look like a name. */
export function loggedBot({ namespace, botProviderName }: PathParameters): string | undefined {
  const segments = [namespace, botProviderName];
  const isName = segments.every((segment) => typeof segment === 'string' && NAME.test(segment));
  return isName ? segments.join('/') : undefined;
}

function isPlain(segment: string | string[] | undefined): segment is string {
  return typeof segment === 'string' && PLAIN_SEGMENT.test(segment);
}
