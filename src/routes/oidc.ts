import type { Response } from 'express';
import type { IdentityProvider } from '../authenticate/oidc/identity-provider.ts';
import { invalidLogoutToken, readLogoutToken } from '../authenticate/oidc/logout-token.ts';
import { queryOf } from '../authenticate/oidc/query-of.ts';
import { localPath } from '../authenticate/oidc/return-to.ts';
import type { SessionBefore } from '../authenticate/oidc/session-before.ts';
import type { SignInFlows } from '../authenticate/oidc/sign-in-flows.ts';
import type { SignInPage } from '../authenticate/oidc/sign-in-page.ts';
import type { SessionStore } from '../authenticate/sessions/session-store.ts';
import type { Sessions } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import type { BodyOptions } from '../http/read-body.ts';
import { readForm } from '../http/read-form.ts';
import type { LimitByAddress } from '../pace/client-limits.ts';
import type { OnceOnly } from '../pace/once-only.ts';
import type { Steps } from './route.ts';

export interface OidcRoutes {
  readonly limitByAddress: LimitByAddress;
  readonly provider: IdentityProvider;
  readonly flows: SignInFlows;
  /** The path below which the sign-in itself lies. */
  readonly authPath: string;
  readonly page: SignInPage;
  /** What the sign-in replaces. */
  readonly before: SessionBefore;
  readonly sessions: Sessions;
  readonly store: SessionStore;
  readonly body: BodyOptions;
  /** Does the work for a text that has not come before, and remembers it if that goes well; false if it has. */
  readonly once: OnceOnly;
}

/**
 * `GET /auth/login?returnTo=/path`: sends the browser to the identity provider. With `prompt=login` the provider asks
 * who it is even those who are signed in there.
 */
export function beginSignIn({ limitByAddress, provider, flows, authPath }: OidcRoutes): Steps {
  return async function beginSignIn(req, res) {
    await limitByAddress(req, res);
    const query = new URLSearchParams(queryOf(req));
    const flow = flows.begin(localPath(query.get('returnTo'), authPath));
    const url = await provider.signInUrl(flow, query.get('prompt') === 'login');
    // Not before the provider has answered: what cannot begin takes no other tab's place.
    await flows.keep(req, res, flow);
    redirect(res, url);
  };
}

/**
 * `GET /auth/callback`: where the provider sends the browser back to. A session with a new id begins, the one that the
 * browser had is over, and the browser goes where it came from. What has begun in another browser, or is over, does
 * not sign anybody in, nor does what the provider signs out meanwhile.
 */
export function endSignIn(routes: OidcRoutes): Steps {
  const { provider, flows, before, sessions, store, page } = routes;
  return async function endSignIn(req, res) {
    await routes.limitByAddress(req, res);
    const startedAt = Date.now();
    const query = queryOf(req);
    const flow = await flows.take(req, res, new URLSearchParams(query).get('state') ?? '');
    if (!flow) throw NO_SUCH_SIGN_IN;
    try {
      const { user, provider: said } = await provider.arrive(query, flow);
      res.locals.userId = user.id;
      await before.end(req);
      const owner = { userId: user.id, providerSession: said.providerSession };
      const confirm = async () => {
        // A logout found this session only if it came after the session was saved.
        if (await store.removedSince(owner, startedAt)) throw SIGNED_OUT_MEANWHILE;
      };
      const session = await sessions.begin(req, res, { user, confirm, ...said });
      before.remember(session.key, res);
      redirect(res, flow.returnTo);
    } catch (error) {
      if (!page(error, { req, res, returnTo: flow.returnTo })) throw error;
    }
  };
}

const NO_SUCH_SIGN_IN = new Problem(
  'sign_in_failed',
  'This sign-in is over already, took too long, or began in another browser.',
  { cause: 'no_such_sign_in' },
);
const SIGNED_OUT_MEANWHILE = new Problem(
  'sign_in_failed',
  'You were signed out while you signed in; try again.',
  { cause: 'signed_out_meanwhile' },
);

/** What `POST /auth/logout` answers: where the browser goes to sign out at the identity provider, or null. */
export function farewell(provider: IdentityProvider) {
  return async (session: Parameters<IdentityProvider['signOutUrl']>[0]) => ({
    logoutUrl: (await provider.signOutUrl(session)) ?? null,
  });
}

/**
 * `POST /auth/backchannel-logout` (OpenID Connect Back-Channel Logout 1.0 §2.5): ends the sessions that the token
 * names; what is open of them ends as the store tells, and how many they were is for the log.
 */
export function backchannelLogout({ limitByAddress, body, provider, store, once }: OidcRoutes): Steps {
  return async function backchannelLogout(req, res) {
    await limitByAddress(req, res);
    const form = await readForm(req, body);
    const token = form.get('logout_token');
    if (!token) throw invalidLogoutToken('no_token');
    const { jti, sid, sub } = await readLogoutToken(token, provider);
    const isNew = await once(jti, async () => {
      res.locals.sessionsEnded =
        sid === undefined
          ? { by: 'sub', count: await store.removeUser(sub as string) }
          : { by: 'sid', count: await store.removeProviderSession(sid) };
    });
    if (!isNew) throw invalidLogoutToken('replayed');
    res.status(200).end();
  };
}

/** A redirect without a body: nothing that came is written into a page. */
function redirect(res: Response, location: string): void {
  res.status(302).set({ Location: location, 'Content-Length': '0' }).end();
}
