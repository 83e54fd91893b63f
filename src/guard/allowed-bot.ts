import type { Request, RequestHandler } from 'express';
import type { Bot } from '../bots/bot.ts';
import { Problem } from '../errors.ts';

/** A decoded path segment that means the same to everybody: no slash, escape, control or format character, no dot segment. */
const PLAIN_SEGMENT = /^(?!\.{1,2}$)[^/\\%\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,256}$/u;

/**
 * Lets only bots of the allow-list pass, as `res.locals.bot`. `patterns` are `namespace/bot` pairs; `*`
 * stands for one whole segment. A bot that is not on the list gets the same answer whether it exists or not.
 * @throws Problem `unknown_bot`
 */
export function allowedBot(patterns: readonly string[]): RequestHandler {
  const find = allowList(patterns);
  return function allowedBot(req, res, next) {
    res.locals.bot = find(req.params);
    next();
  };
}

/**
 * Makes the function that finds the bot of a route's decoded path parameters.
 * @throws Problem `unknown_bot` from that function
 */
export function allowList(patterns: readonly string[]): (parameters: Request['params']) => Bot {
  const exact = new Set(patterns);
  return function allowedBot(parameters) {
    const { namespace = '', botProviderName = '' } = parameters as Record<string, string>;
    const allowed =
      PLAIN_SEGMENT.test(namespace) &&
      PLAIN_SEGMENT.test(botProviderName) &&
      (exact.has(`${namespace}/${botProviderName}`) ||
        exact.has(`${namespace}/*`) ||
        exact.has(`*/${botProviderName}`) ||
        exact.has('*/*'));
    if (!allowed) throw new Problem('unknown_bot', 'There is no such bot here.');
    return { namespace, botProviderName };
  };
}
