import type { Request, Response } from 'express';
import { clientAddress } from '../http/client-address.ts';
import type { LimitByKey, RequestLimitOptions } from './request-limits.ts';
import { CLIENT_WINDOW_MS, SIGN_IN_WINDOW_MS } from './windows.ts';

/** How many requests one client may make in a minute; 0 is no limit. */
export interface ClientLimits {
  readonly perAddress: number;
  readonly perSession: number;
}

/** Counts a request for its client's address. @throws Problem `too_many_attempts` */
export type LimitByAddress = (req: Request, res: Response) => Promise<void>;

const DETAIL = 'Too many requests from here; wait and try again.';

type CreateLimit = (options: RequestLimitOptions) => LimitByKey;

/** The limit of each address. It is judged before all else; a refused request may have been counted for its session. */
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
