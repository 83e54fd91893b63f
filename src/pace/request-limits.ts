import type { Request, RequestHandler, Response } from 'express';
import {
  type AugmentedRequest,
  MemoryStore,
  type RateLimitInfo,
  rateLimit,
  type Store,
} from 'express-rate-limit';
import { Problem } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { keyPart } from '../storage/redis-key.ts';

/** Where the counts of the limit `name` are kept; no two limits share any. */
export type Counts = (name: string) => Store;

/** Counts of this process alone. What is over is forgotten after at most two windows. */
export const memoryCounts: Counts = () => new MemoryStore();

export interface RequestLimitOptions {
  readonly name: string;
  /** How many requests of one key are let through in a window of `windowMs`, which begins with the first of them. */
  readonly limit: number;
  readonly windowMs: number;
  /** Whose request it is; it does not count if it is nobody's. */
  readonly keyOf: (req: Request, res: Response) => string | undefined;
  /** What a client is told that is refused. */
  readonly detail: string;
  /** Where it is counted, if not where the others are. */
  readonly store?: Store;
}

/** Makes a stage that refuses requests over a limit. */
export type RequestLimit = (options: RequestLimitOptions) => RequestHandler;

/**
 * Limits that keep their counts in `counts`. Their stages send no `RateLimit` headers, which are the endpoint's.
 * @throws Problem `too_many_attempts` from a stage, or what `counts` throws: nobody is let through uncounted
 */
export function requestLimits(counts: Counts, logger: Logger): RequestLimit {
  return function requestLimit({ name, limit, windowMs, keyOf, detail, store = counts(name) }) {
    return rateLimit({
      windowMs,
      limit,
      store,
      logger,
      skip: (req, res) => keyOf(req, res) === undefined,
      keyGenerator: (req, res) => keyPart(keyOf(req, res) ?? ''),
      standardHeaders: false,
      legacyHeaders: false,
      handler(req, _res, next) {
        const { resetTime } = (req as AugmentedRequest).rateLimit as RateLimitInfo;
        next(tooManyAttempts(detail, resetTime ? resetTime.getTime() - Date.now() : windowMs));
      },
    });
  };
}

/** The refusal of whoever is over a limit until `waitMs` have passed. */
export function tooManyAttempts(detail: string, waitMs: number): Problem {
  return new Problem('too_many_attempts', detail, { retryAfter: Math.max(1, Math.ceil(waitMs / 1000)) });
}
