import type { Express, NextFunction, Request, Response } from 'express';
import { LOGOUT_TOKEN_LIFE_MS } from '../authenticate/oidc/logout-token.ts';
import { previousSession } from '../authenticate/oidc/previous-session.ts';
import { returnToOf, signInPage } from '../authenticate/oidc/sign-in-page.ts';
import type { Users } from '../authenticate/password/users.ts';
import { realmOf } from '../authenticate/sessions/session.ts';
import { createRunOnce } from '../pace/arrivals.ts';
import { loginAttempts } from '../pace/login-attempts.ts';
import { guestLimit } from '../pace/request-limits.ts';
import type { Dependencies, SignIn } from './dependencies.ts';
import { guestSession } from './guest.ts';
import { backchannelLogout, beginSignIn, finishSignIn } from './oidc.ts';
import { passwordLogin } from './password.ts';
import { route } from './route.ts';
import { BODY_TIMEOUT_MS, isHttps, type SharedSteps } from './shared-steps.ts';

const MAX_LOGIN_BYTES = 4096;
const MAX_LOGOUT_TOKEN_BYTES = 16_384;

/** The routes to sign in, in the way that `AUTH_MODE` names. */
export function signInRoutes(app: Express, dependencies: Dependencies, steps: SharedSteps): void {
  const { signIn } = dependencies;
  switch (signIn.mode) {
    case 'password':
      passwordRoutes(app, { ...dependencies, users: signIn.users }, steps);
      break;
    case 'oidc':
      oidcRoutes(app, { ...dependencies, signIn }, steps);
      break;
    case 'guest':
      guestRoutes(app, dependencies, steps);
      break;
  }
}

function passwordRoutes(
  app: Express,
  dependencies: Dependencies & { readonly users: Users },
  steps: SharedSteps,
): void {
  const { config, users, attempts } = dependencies;
  const body = { maxBytes: MAX_LOGIN_BYTES, timeoutMs: BODY_TIMEOUT_MS };
  const login = passwordLogin({
    ...steps,
    body,
    users,
    attempts: loginAttempts(steps.newLimit, attempts, config.login),
  });
  route(app, `${config.basePath}/auth/login`, { post: login });
}

function oidcRoutes(
  app: Express,
  dependencies: Dependencies & { readonly signIn: Extract<SignIn, { readonly mode: 'oidc' }> },
  steps: SharedSteps,
): void {
  const { config, signIn, sessions: store, counts } = dependencies;
  const { provider, signInFlows } = signIn;
  const auth = `${config.basePath}/auth`;
  const [signInPath, callbackPath] = [`${auth}/login`, `${auth}/callback`];
  const https = isHttps(config);
  const page = signInPage(signInPath);
  const oidc = {
    ...steps,
    provider,
    store,
    page,
    authPath: auth,
    flows: signInFlows({ ...config.session, https, realm: realmOf(config) }),
    previous: previousSession({ ...config.session, https, sessions: store, callbackPath }),
    body: { maxBytes: MAX_LOGOUT_TOKEN_BYTES, timeoutMs: BODY_TIMEOUT_MS },
    once: createRunOnce(counts, 'logout-token', LOGOUT_TOKEN_LIFE_MS),
  };
  route(app, signInPath, { get: beginSignIn(oidc) });
  route(app, callbackPath, { get: finishSignIn(oidc) });
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use([signInPath, callbackPath], (error: unknown, req: Request, res: Response, next: NextFunction) => {
    if (!page(error, { req, res, returnTo: returnToOf(req, signInPath) })) next(error);
  });
  route(app, `${auth}/backchannel-logout`, { post: backchannelLogout(oidc) });
}

function guestRoutes(app: Express, { config }: Dependencies, steps: SharedSteps): void {
  const limitNewGuests = guestLimit(steps.newLimit, config.guestsPerAddress);
  const guest = guestSession({ ...steps, limitNewGuests });
  route(app, `${config.basePath}/auth/guest`, { post: guest });
}
