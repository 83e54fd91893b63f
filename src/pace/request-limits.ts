import type { Request, RequestHandler, Response } from 'express';
import {
  type AugmentedRequest,
  MemoryStore,
  type RateLimitInfo,
  rateLimit,
  type Store,
} from 'express-rate-limit';
import { Problem } from '../errors.ts';
import { clientAddress } from '../http/client-address.ts';
import type { Logger } from '../logger.ts';
import { keyPart } from '../storage/redis-key.ts';

/** The window of the limits on requests, in ms. A minute, as such limits are mostly stated. */
const CLIENT_WINDOW_MS = 60_000;

/**
 * The window of the limits on failed sign-ins and on new guests, in ms. Ten minutes: guessing takes too long, and who
 * has forgotten a password need not wait for long.
 */
export const SIGN_IN_WINDOW_MS = 600_000;

/** Returns the store for the counts of the limit `name`; limits with different names share no counts. */
export type Counts = (name: string) => Store;

/** Counts of this process only. An old count is forgotten after at most two windows. */
export const memoryCounts: Counts = () => new MemoryStore();

export interface RequestLimitOptions {
  readonly name: string;
  /** How many requests of one key may pass in a window, which begins with the first of them; 0 is no limit. */
  readonly limit: number;
  readonly windowMs: number;
  /** What a refused client is told. */
  readonly detail: string;
  /** Replaces the default store. */
  readonly store?: Store;
}

/**
 * Counts a request for `key`.
 * @throws Problem `too_many_attempts` if it is over the limit, or what the store throws: no request passes uncounted
 */
export type LimitByKey = (req: Request, res: Response, key: string) => Promise<void>;

/**
 * Makes limits that keep their counts in `counts`. They send no `RateLimit` headers, which are for the endpoint's
 * budget.
 */
export function requestLimits(counts: Counts, logger: Logger): (options: RequestLimitOptions) => LimitByKey {
  return function requestLimit({ name, limit, windowMs, detail, store = counts(name) }) {
    if (limit === 0) return async () => {};
    /** The key of each request, for `keyGenerator`. */
    const keys = new WeakMap<Request, string>();
    // Two limits may be asked at the same time: each stores its answer in a property of its own.
    const requestPropertyName = `rateLimit ${name}`;
    const middleware = rateLimit({
      windowMs,
      limit,
      store,
      logger,
      requestPropertyName,
      keyGenerator: (req) => keyPart(keys.get(req) ?? ''),
      standardHeaders: false,
      legacyHeaders: false,
      handler(req, _res, next) {
        const { resetTime } = (req as AugmentedRequest)[requestPropertyName] as RateLimitInfo;
        next(tooManyAttempts(detail, resetTime ? resetTime.getTime() - Date.now() : windowMs));
      },
    });
    return async (req, res, key) => {
      keys.set(req, key);
      await pass(middleware, req, res);
    };
  };
}

/** Resolves when `middleware` lets the request pass; rejects with the error that it gives to `next`. */
function pass(middleware: RequestHandler, req: Request, res: Response): Promise<void> {
  return new Promise((resolve, reject) => {
    middleware(req, res, (error?: unknown) => (error ? reject(error) : resolve()));
  });
}

/** The problem for a client that is over a limit for another `waitMs`. */
export function tooManyAttempts(detail: string, waitMs: number): Problem {
  return new Problem('too_many_attempts', detail, { retryAfter: Math.max(1, Math.ceil(waitMs / 1000)) });
}

/** How many requests one client may make in a minute; 0 is no limit. */
interface ClientLimits {
  readonly perAddress: number;
  readonly perSession: number;
}

/** Counts a request for its client's address. @throws Problem `too_many_attempts` */
export type LimitByAddress = (req: Request, res: Response) => Promise<void>;

const DETAIL = 'Too many requests from here; wait and try again.';

type CreateLimit = (options: RequestLimitOptions) => LimitByKey;

/** The limit of each address. A request that it refuses may have been counted for its session, too. */
export function addressLimit(limit: CreateLimit, { perAddress }: ClientLimits): LimitByAddress {
  const windowMs = CLIENT_WINDOW_MS;
  return byClient(limit({ name: 'address', limit: perAddress, windowMs, detail: DETAIL }));
}

/** The limit of each session, from all addresses together; counted by the session's key. */
export function sessionLimit(limit: CreateLimit, { perSession }: ClientLimits): LimitByKey {
  return limit({ name: 'session', limit: perSession, windowMs: CLIENT_WINDOW_MS, detail: DETAIL });
}

/** The limit on new guests from one address; 0 is no limit. */
export function guestLimit(limit: CreateLimit, perAddress: number): LimitByAddress {
  const detail = 'Too many new guests come from here; wait and try again.';
  return byClient(limit({ name: 'guests', limit: perAddress, windowMs: SIGN_IN_WINDOW_MS, detail }));
}

function byClient(limit: LimitByKey): LimitByAddress {
  return (req, res) => limit(req, res, clientAddress(req));
}
