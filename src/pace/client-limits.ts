import type { Request, Response } from 'express';
import { clientAddress } from '../http/client-address.ts';
import type { RequestLimit, RequestLimitOptions } from './request-limits.ts';

/** How many requests one client may make in a window of `windowMs`; 0 is no limit. */
export interface ClientLimits {
  readonly perAddress: number;
  readonly perSession: number;
  readonly windowMs: number;
}

/** How many new guests may come from one address in a window of `windowMs`; 0 is no limit. */
export interface GuestLimit {
  readonly perAddress: number;
  readonly windowMs: number;
}

/** What one address may ask of the relay. @throws Problem `too_many_attempts` */
export type LimitByAddress = (req: Request, res: Response) => Promise<void>;

const DETAIL = 'Too many requests from here; wait and try again.';

type LimitMaker = (options: RequestLimitOptions) => RequestLimit;

/** Stands before whatever costs something: a client without a session reaches no session store. */
export function addressLimit(
  limit: LimitMaker,
  { perAddress, windowMs }: Omit<ClientLimits, 'perSession'>,
): LimitByAddress {
  const byAddress = limit({ name: 'address', limit: perAddress, windowMs, detail: DETAIL });
  return (req, res) => byAddress(req, res, clientAddress(req));
}

/** What one session may ask of the relay, from whatever addresses; counted by the session's key. */
export function sessionLimit(limit: LimitMaker, { perSession, windowMs }: ClientLimits): RequestLimit {
  return limit({ name: 'session', limit: perSession, windowMs, detail: DETAIL });
}

/** How many guests may come from one address. */
export function guestLimit(limit: LimitMaker, { perAddress, windowMs }: GuestLimit): LimitByAddress {
  const detail = 'Too many new guests come from here; wait and try again.';
  const byAddress = limit({ name: 'guests', limit: perAddress, windowMs, detail });
  return (req, res) => byAddress(req, res, clientAddress(req));
}
