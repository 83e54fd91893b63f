import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

/** A decoded path segment that means the same to everybody: no slash, escape, control or format character, no dot segment. */
const PLAIN_SEGMENT = /^(?!\.{1,2}$)[^/\\%\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,256}$/u;

/**
 * Lets only bots of the allow-list pass, as `res.locals.bot`. `patterns` are `namespace/bot` pairs; `*`
 * stands for one whole segment. A bot that is not on the list gets the same answer whether it exists or not.
 * @throws Problem `unknown_bot`
 */
export function allowedBot(patterns: readonly string[]): RequestHandler {
  const exact = new Set(patterns);
  return function allowedBot(req, res, next) {
    const { namespace = '', botProviderName = '' } = req.params as Record<string, string>;
    const allowed =
      PLAIN_SEGMENT.test(namespace) &&
      PLAIN_SEGMENT.test(botProviderName) &&
      (exact.has(`${namespace}/${botProviderName}`) ||
        exact.has(`${namespace}/*`) ||
        exact.has(`*/${botProviderName}`) ||
        exact.has('*/*'));
    if (!allowed) throw new Problem('unknown_bot', 'There is no such bot here.');
    res.locals.bot = { namespace, botProviderName };
    next();
  };
}
