import type { Request, RequestHandler, Response } from 'express';
import { clientAddress } from '../http/client-address.ts';
import type { RequestLimit } from './request-limits.ts';

/** How many requests one client may make in a window of `windowMs`; 0 is no limit. */
export interface ClientLimits {
  readonly perAddress: number;
  readonly perSession: number;
  readonly windowMs: number;
}

const unlimited: RequestHandler = (_req, _res, next) => next();
const DETAIL = 'Too many requests from here; wait and try again.';

/**
 * Limits what one address may ask of the relay. Stands before whatever costs something: a client without a session
 * reaches no session store.
 * @throws Problem `too_many_attempts`
 */
export function addressLimit(limit: RequestLimit, { perAddress, windowMs }: ClientLimits): RequestHandler {
  if (perAddress === 0) return unlimited;
  return limit({ name: 'address', limit: perAddress, windowMs, keyOf: clientAddress, detail: DETAIL });
}

/**
 * Limits what one session may ask of the relay, from whatever addresses. `sessionOf` says whose request it is.
 * @throws Problem `too_many_attempts`
 */
export function sessionLimit(
  limit: RequestLimit,
  { perSession, windowMs }: ClientLimits,
  sessionOf: (req: Request, res: Response) => string | undefined,
): RequestHandler {
  if (perSession === 0) return unlimited;
  return limit({ name: 'session', limit: perSession, windowMs, keyOf: sessionOf, detail: DETAIL });
}

export interface GuestLimit {
  /** How many new guests may come from one address in a window of `windowMs`; 0 is no limit. */
  readonly perAddress: number;
  readonly windowMs: number;
  /** The address of whoever asks to become a guest; undefined for one who is. */
  readonly guestOf: (req: Request) => string | undefined;
}

/**
 * Limits how many guests may come from one address.
 * @throws Problem `too_many_attempts`
 */
export function guestLimit(
  limit: RequestLimit,
  { perAddress, windowMs, guestOf }: GuestLimit,
): RequestHandler {
  if (perAddress === 0) return unlimited;
  const detail = 'Too many new guests come from here; wait and try again.';
  return limit({ name: 'guests', limit: perAddress, windowMs, keyOf: guestOf, detail });
}
