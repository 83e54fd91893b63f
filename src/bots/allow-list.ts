import { Problem } from '../errors.ts';
import type { Bot } from './bot.ts';

/** A decoded path segment that means the same to everybody: no slash, escape, control or format character, no dot segment. */
const PLAIN_SEGMENT = /^(?!\.{1,2}$)[^/\\%\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,256}$/u;

/** A route's decoded path parameters. */
export type PathParameters = Readonly<Record<string, string | string[] | undefined>>;

/**
 * Makes the function that finds the bot of a path. `patterns` are `namespace/bot` pairs; `*` stands for one whole
 * segment. A bot that is not on the list gets the same answer whether it exists or not.
 * It throws Problem `unknown_bot`.
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

function isPlain(segment: string | string[] | undefined): segment is string {
  return typeof segment === 'string' && PLAIN_SEGMENT.test(segment);
}
