import type { Response } from 'express';
import type { IdentityProvider } from '../authenticate/oidc/identity-provider.ts';
import { invalidLogoutToken, readLogoutToken } from '../authenticate/oidc/logout-token.ts';
import type { PreviousSession } from '../authenticate/oidc/previous-session.ts';
import { localPath, queryOf } from '../authenticate/oidc/return-to.ts';
import type { SignInFlows } from '../authenticate/oidc/sign-in-flows.ts';
import type { SignInPage } from '../authenticate/oidc/sign-in-page.ts';
import type { SessionStore } from '../authenticate/sessions/session-store.ts';
import { type Sessions, SIGNED_OUT_MEANWHILE } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import { type BodyOptions, readForm } from '../http/body.ts';
import type { RunOnce } from '../pace/arrivals.ts';
import type { LimitByAddress } from '../pace/request-limits.ts';
import type { Steps } from './route.ts';

export interface OidcRoutes {
  readonly limitByAddress: LimitByAddress;
  readonly provider: IdentityProvider;
  readonly flows: SignInFlows;
  /** The path of the sign-in routes, to which a sign-in must not return. */
  readonly authPath: string;
  readonly page: SignInPage;
  readonly previous: PreviousSession;
  readonly sessions: Sessions;
  readonly store: SessionStore;
  readonly body: BodyOptions;
  /** Does the work for the id of a logout token, unless it was done before. */
  readonly once: RunOnce;
}

/**
 * `GET /auth/login?returnTo=/path`: redirects the browser to the identity provider. With `prompt=login` the provider asks
 * for the password even if the user is signed in there.
 */
export function beginSignIn({ limitByAddress, provider, flows, authPath }: OidcRoutes): Steps {
  return async function beginSignIn(req, res) {
    await limitByAddress(req, res);
    const query = new URLSearchParams(queryOf(req));
    const flow = flows.begin(localPath(query.get('returnTo'), authPath));
    const url = await provider.signInUrl(flow, query.get('prompt') === 'login');
    // Only after the provider has answered: a sign-in that cannot begin must not remove the cookie of another tab.
    await flows.keep(req, res, flow);
    redirect(res, url);
  };
}

/**
 * `GET /auth/callback`: the provider redirects the browser here. Ends the browser's previous session, begins one with a
 * new id, and redirects to the page where the sign-in began. Refuses a sign-in that began in another browser, is over,
 * or whose user was signed out by the provider meanwhile.
 */
export function finishSignIn(routes: OidcRoutes): Steps {
  const { provider, flows, previous, sessions, store, page } = routes;
  return async function finishSignIn(req, res) {
    await routes.limitByAddress(req, res);
    const startedAt = await store.now();
    const query = queryOf(req);
    const flow = await flows.take(req, res, new URLSearchParams(query).get('state') ?? '');
    if (!flow) throw NO_SUCH_SIGN_IN;
    try {
      const { user, provider: atProvider } = await provider.finishSignIn(query, flow);
      res.locals.userId = user.id;
      await previous.end(req);
      const owner = { userId: user.id, providerSession: atProvider.providerSession };
      const confirm = async () => {
        // A logout that came before the session was stored has not removed it.
        if (await store.removedSince(owner, startedAt)) throw SIGNED_OUT_MEANWHILE;
      };
      const session = await sessions.begin(req, res, { user, confirm, ...atProvider });
      previous.remember(session.key, res);
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

/** The body with which `POST /auth/logout` answers: the address to sign out at the identity provider, or null. */
export function logoutAnswer(provider: IdentityProvider) {
  return async (session: Parameters<IdentityProvider['signOutUrl']>[0]) => ({
    logoutUrl: (await provider.signOutUrl(session)) ?? null,
  });
}

/**
 * `POST /auth/backchannel-logout` (OpenID Connect Back-Channel Logout 1.0 §2.5): ends the sessions that the token names.
 * Their open messages end by the store's `RemovalListener`. The number of sessions is logged.
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

/** A redirect without a body, so that no input is written into a page. */
function redirect(res: Response, location: string): void {
  res.status(302).set({ Location: location, 'Content-Length': '0' }).end();
}
