import type { Request, RequestHandler, Response } from 'express';
import { Problem } from '../../errors.ts';
import { beginSession, endWithCookie, stored } from '../sessions/begin-session.ts';
import type { SessionLimits } from '../sessions/session-data.ts';
import type { Farewell } from '../sessions/session-routes.ts';
import type { SessionStore } from '../sessions/session-store.ts';
import type { IdentityProvider } from './identity-provider.ts';
import { invalidLogoutToken, readLogoutToken } from './logout-token.ts';
import { queryOf } from './query-of.ts';
import { localPath } from './return-to.ts';
import type { SessionBefore } from './session-before.ts';
import type { SignInFlows } from './sign-in-flows.ts';

export interface OidcSignInOptions {
  readonly provider: IdentityProvider;
  readonly flows: SignInFlows;
  /** The path below which the sign-in itself lies. */
  readonly authPath: string;
}

/**
 * `GET /auth/login?returnTo=/path`: sends the browser to the identity provider. With `prompt=login` the provider asks
 * who it is even those who are signed in there.
 * @throws Problem `identity_provider_unavailable`
 */
export function startSignIn({ provider, flows, authPath }: OidcSignInOptions): RequestHandler {
  return async function startSignIn(req, res) {
    const query = new URLSearchParams(queryOf(req));
    const returnTo = localPath(query.get('returnTo'), authPath);
    const flow = flows.begin(returnTo);
    const url = await provider.signInUrl(flow, query.get('prompt') === 'login');
    // Not before the provider has answered: what cannot begin takes no other tab's place.
    await flows.keep(req, res, flow);
    redirect(res, url);
    res.end();
  };
}

export interface EndSignInOptions extends OidcSignInOptions {
  /** What the sign-in replaces. */
  readonly before: SessionBefore;
  readonly sessions: Pick<SessionStore, 'removedSince'>;
  readonly limits: SessionLimits;
}

/**
 * `GET /auth/callback`: where the provider sends the browser back to. A session with a new id begins, the one that the
 * browser had is over, and the browser goes where it came from. What has begun in another browser, or is over, does
 * not sign anybody in, nor does what the provider signs out meanwhile.
 * @throws Problem `sign_in_failed`, `not_allowed`, `identity_provider_unavailable` or `session_store_unavailable`
 */
export function endSignIn({ provider, flows, before, sessions, limits }: EndSignInOptions): RequestHandler {
  return async function endSignIn(req, res) {
    const startedAt = Date.now();
    const query = queryOf(req);
    const flow = await flows.take(req, res, new URLSearchParams(query).get('state') ?? '');
    if (!flow) {
      throw new Problem(
        'sign_in_failed',
        'This sign-in is over already, took too long, or began in another browser.',
        { cause: 'no_such_sign_in' },
      );
    }
    res.locals.returnTo = flow.returnTo;
    const { user, provider: providerSession } = await provider.arrive(query, flow);
    await before.end(req);
    await beginSession(req, res, { user, limits, provider: providerSession });
    // A logout found this session only if it came after the session was saved.
    const owner = { userId: user.id, providerSession: providerSession.providerSession };
    if (await sessions.removedSince(owner, startedAt)) await refuseSignedOut(req);
    before.remember(req, res);
    redirect(res, flow.returnTo);
    endWithCookie(req, res);
  };
}

/** @throws Problem `sign_in_failed` or `session_store_unavailable` */
async function refuseSignedOut({ session }: Request): Promise<never> {
  await stored((done) => session.destroy(done));
  throw new Problem('sign_in_failed', 'You were signed out while you signed in; try again.', {
    cause: 'signed_out_meanwhile',
  });
}

/** What `POST /auth/logout` answers: where the browser goes to sign out at the identity provider, or null. */
export function farewell(provider: IdentityProvider): Farewell {
  return async (session) => ({ logoutUrl: (await provider.signOutUrl(session)) ?? null });
}

export interface BackchannelLogoutOptions {
  readonly provider: IdentityProvider;
  readonly sessions: SessionStore;
  /** Does the work for a text that has not come before, and remembers it if that goes well; false if it has. */
  readonly once: (text: string, work: () => Promise<void>) => Promise<boolean>;
}

/**
 * `POST /auth/backchannel-logout` (OpenID Connect Back-Channel Logout 1.0 §2.5): ends the sessions that the token
 * names; what is open of them ends as the store tells, and how many they were is for the log.
 * @throws Problem `invalid_logout_token`, `identity_provider_unavailable` or `session_store_unavailable`
 */
export function backchannelLogout({ provider, sessions, once }: BackchannelLogoutOptions): RequestHandler {
  return async function backchannelLogout(_req, res) {
    const form = new URLSearchParams(res.locals.body?.toString('latin1'));
    const token = form.get('logout_token');
    if (!token) throw invalidLogoutToken('no_token');
    const { jti, sid, sub } = await readLogoutToken(token, provider);
    const isNew = await once(jti, async () => {
      res.locals.sessionsEnded =
        sid === undefined
          ? { by: 'sub', count: await sessions.removeUser(sub as string) }
          : { by: 'sid', count: await sessions.removeProviderSession(sid) };
    });
    if (!isNew) throw invalidLogoutToken('replayed');
    res.status(200).end();
  };
}

/** A redirect without a body: nothing that came is written into a page. */
function redirect(res: Response, location: string): void {
  res.status(302).set({ Location: location, 'Content-Length': '0' });
}
