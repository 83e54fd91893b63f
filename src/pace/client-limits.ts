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

/** Counts a request for its client's address. @throws Problem `too_many_attempts` */
export type LimitByAddress = (req: Request, res: Response) => Promise<void>;

/** One that can count by its store alone, as a `RequestLimit`. */
export type AddressLimit = LimitByAddress & { readonly count: (req: Request) => Promise<void> };

const DETAIL = 'Too many requests from here; wait and try again.';

type CreateLimit = (options: RequestLimitOptions) => RequestLimit;

/** The limit of each address. It is judged before all else; a refused request may have been counted for its session. */
export function addressLimit(
  limit: CreateLimit,
  { perAddress, windowMs }: Omit<ClientLimits, 'perSession'>,
): AddressLimit {
  const byAddress = limit({ name: 'address', limit: perAddress, windowMs, detail: DETAIL });
  return byClient(byAddress);
}

/** The limit of each session, from all addresses together; counted by the session's key. */
export function sessionLimit(limit: CreateLimit, { perSession, windowMs }: ClientLimits): RequestLimit {
  return limit({ name: 'session', limit: perSession, windowMs, detail: DETAIL });
}

/** The limit on new guests from one address. */
export function guestLimit(limit: CreateLimit, { perAddress, windowMs }: GuestLimit): LimitByAddress {
  const detail = 'Too many new guests come from here; wait and try again.';
  const byAddress = limit({ name: 'guests', limit: perAddress, windowMs, detail });
  return byClient(byAddress);
}

function byClient(limit: RequestLimit): AddressLimit {
  return Object.assign((req: Request, res: Response) => limit(req, res, clientAddress(req)), {
    count: (req: Request) => limit.count(clientAddress(req)),
  });
}
