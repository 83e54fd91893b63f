import type { IncomingHttpHeaders } from 'node:http';
import { realmOf } from '../authenticate/sessions/session.ts';
import { sessionCookie } from '../authenticate/sessions/session-cookie.ts';
import { openSessions, type Sessions } from '../authenticate/sessions/sessions.ts';
import type { Config } from '../config/config.ts';
import { originCheck } from '../guard/fetch-metadata.ts';
import {
  addressLimit,
  type LimitByAddress,
  type LimitByKey,
  type RequestLimitOptions,
  requestLimits,
  sessionLimit,
} from '../pace/request-limits.ts';
import type { Dependencies } from './dependencies.ts';

/** How long a request's body may take to arrive, in ms. */
export const BODY_TIMEOUT_MS = 30_000;

/** Steps that more than one route takes, each built once. */
export interface SharedSteps {
  readonly limitByAddress: LimitByAddress;
  /** Makes another limit, with its own counts. */
  readonly newLimit: (options: RequestLimitOptions) => LimitByKey;
  readonly limitBySession: LimitByKey;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Sessions;
}

/** Builds the steps. */
export function sharedSteps({
  config,
  counts,
  logger,
  sessions: store,
}: Pick<Dependencies, 'config' | 'counts' | 'logger' | 'sessions'>): SharedSteps {
  const newLimit = requestLimits(counts, logger);
  const { secrets, sameSite } = config.session;
  const cookie = sessionCookie({ secrets, sameSite, realm: realmOf(config), https: isHttps(config) });
  return {
    newLimit,
    limitByAddress: addressLimit(newLimit, config.clientLimits),
    limitBySession: sessionLimit(newLimit, config.clientLimits),
    checkOrigin: originCheck({ own: config.publicUrl.origin, allowed: config.allowedOrigins }),
    sessions: openSessions({ store, cookie, limits: config.session }),
  };
}

/** Whether browsers see the relay over https. */
export function isHttps({ publicUrl }: Pick<Config, 'publicUrl'>): boolean {
  return publicUrl.protocol === 'https:';
}
