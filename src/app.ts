import express, { type Express, type RequestHandler } from 'express';
import { accessLog } from './arrive/access-log.ts';
import { inTurns } from './arrive/in-turns.ts';
import { notFound, problemResponse } from './arrive/problem-response.ts';
import { refuseWhileDraining } from './arrive/refuse-while-draining.ts';
import { requestId } from './arrive/request-id.ts';
import { requestTarget } from './arrive/request-target.ts';
import { securityHeaders } from './arrive/security-headers.ts';
import { guest, newGuestOf } from './authenticate/guest/guest.ts';
import type { IdentityProvider } from './authenticate/oidc/identity-provider.ts';
import { LOGOUT_TOKEN_LIFE_MS } from './authenticate/oidc/logout-token.ts';
import { backchannelLogout, endSignIn, farewell, startSignIn } from './authenticate/oidc/oidc-routes.ts';
import { sessionBefore } from './authenticate/oidc/session-before.ts';
import { signInFlows } from './authenticate/oidc/sign-in-flows.ts';
import { signInPage } from './authenticate/oidc/sign-in-page.ts';
import { accountOf, login } from './authenticate/password/password-login.ts';
import type { Users } from './authenticate/password/users.ts';
import { attachSession, readSession, sessionCookie } from './authenticate/sessions/attach-session.ts';
import { realmOf } from './authenticate/sessions/realm.ts';
import { extendSession, letGoWhenRefused, requireSession } from './authenticate/sessions/require-session.ts';
import { liveSessionKey } from './authenticate/sessions/session-data.ts';
import { logout, logoutAll, showSession } from './authenticate/sessions/session-routes.ts';
import { watchSessions } from './authenticate/sessions/session-watch.ts';
import type { Config } from './config/config.ts';
import { allowedBot } from './guard/allowed-bot.ts';
import { cors } from './guard/cors.ts';
import { knownHost } from './guard/known-host.ts';
import { sameOrigin } from './guard/same-origin.ts';
import { clientAddress } from './http/client-address.ts';
import { formBody } from './http/form-body.ts';
import { jsonBody } from './http/json-body.ts';
import { addressLimit, guestLimit, sessionLimit } from './pace/client-limits.ts';
import { endpointBudget, paced } from './pace/endpoint-budget.ts';
import { nameHolders } from './pace/holders.ts';
import { loginAttempts } from './pace/login-attempts.ts';
import { onceOnly } from './pace/once-only.ts';
import { type RequestLimit, requestLimits } from './pace/request-limits.ts';
import { slotWaits } from './pace/slot-waits.ts';
import { streamCap } from './pace/stream-cap.ts';
import { openMessage } from './relay/message/open-messages.ts';
import { relayMessage } from './relay/message/relay-message.ts';
import { createUpstream } from './relay/upstream/send.ts';
import { checkProbeRoute } from './routes/check-probe.ts';
import { operationRoutes } from './routes/mount-operations.ts';
import type { Parts } from './routes/parts.ts';
import { probe, route } from './routes/route.ts';
import { health, readiness } from './watch/health.ts';
import { relayMetrics } from './watch/relay-metrics.ts';
import { requestMetrics } from './watch/request-metrics.ts';

/** How long a request's body may take to arrive, in ms. */
const BODY_TIMEOUT_MS = 30_000;
const MAX_LOGIN_BYTES = 4096;
const MAX_LOGOUT_TOKEN_BYTES = 16_384;

/** The stages in the order in which a request meets them. */
export function createApp(parts: Parts): Express {
  const { config, logger, lifecycle, metrics } = parts;
  const app = express();
  app.set('trust proxy', config.trustProxy);
  app.set('query parser', false);
  app.enable('case sensitive routing').enable('strict routing');
  app.disable('x-powered-by').disable('etag');

  // Arrive
  app.use(inTurns());
  app.use(requestId());
  app.use(accessLog(logger));
  if (metrics) app.use(requestMetrics(metrics));
  app.use(securityHeaders({ https: isHttps(config) }));
  app.use(requestTarget());
  const [healthz, readyz] = [`${config.basePath}/healthz`, `${config.basePath}/readyz`];
  if (config.hosts) app.use(knownHost({ ...config.hosts, exceptPaths: [healthz, readyz] }));
  app.use(cors(config.allowedOrigins));

  // Watch
  route(app, healthz, { get: [probe, health()] });
  const checks = { accepting: lifecycle.isReady, ...(parts.redis && { redis: parts.redis.answers }) };
  const notes = () => (parts.bots.lastFailure() ? { configuration: 'last reload failed' } : {});
  metrics?.readAtScrape({ checks, openMessages: parts.open.count });
  route(app, readyz, { get: [probe, readiness(checks, notes)] });

  app.use(refuseWhileDraining(lifecycle.isDraining));
  const limit = requestLimits(parts.counts, logger);
  // First on each route, whose name the log then has.
  const byAddress = addressLimit(limit, config.clientLimits);
  const origin = sameOrigin({ own: config.publicUrl.origin, allowed: config.allowedOrigins });
  const cookie = { https: isHttps(config), sameSite: config.session.sameSite };
  const { secrets } = config.session;
  const ofUsers = { ...cookie, store: parts.sessions, secrets, realm: realmOf(config) };
  const session = attachSession(ofUsers);

  // Not before the sign-out, which works once only.
  const bySession = sessionLimit(limit, config.clientLimits, liveSessionKey);

  // First, so that no message has to pass the others.
  const reading = readSession(ofUsers);
  message(app, parts, { byAddress, origin, session: reading, bySession });
  operationRoutes(app, parts, { byAddress, origin, session: [reading, requireSession()], bySession });
  authenticate(app, parts, { byAddress, origin, session, bySession, limit, cookie });
  for (const { path, handler } of parts.pages ?? [])
    route(app, config.basePath + path, { get: [byAddress, handler] });

  checkProbeRoute(app, { ...parts, byAddress });
  app.use(byAddress, notFound());
  app.use(letGoWhenRefused());
  app.use(problemResponse(logger));
  return app;
}

/** Stages that stand before more than one route. */
interface Shared {
  readonly byAddress: RequestHandler;
  readonly origin: RequestHandler;
  readonly session: RequestHandler;
  readonly bySession: RequestHandler;
}

interface SharedBySignIn extends Shared {
  readonly limit: RequestLimit;
  readonly cookie: Parameters<typeof sessionCookie>[0];
}

function authenticate(app: Express, parts: Parts, shared: SharedBySignIn): void {
  const { config, signIn, sessions } = parts;
  const { byAddress, origin, session, bySession, cookie } = shared;
  const auth = `${config.basePath}/auth`;
  const signedIn = [byAddress, origin, session, requireSession()];
  if (signIn.mode === 'password') signInByPassword(app, auth, { ...parts, ...shared, users: signIn.users });
  else if (signIn.mode === 'oidc')
    signInAtProvider(app, auth, { ...parts, ...shared, provider: signIn.provider });
  else signInAsGuest(app, auth, { ...parts, ...shared });
  route(app, `${auth}/session`, { get: [byAddress, session, bySession, showSession()] });
  const goodbye = signIn.mode === 'oidc' ? farewell(signIn.provider) : undefined;
  route(app, `${auth}/logout`, { post: [...signedIn, logout(sessionCookie(cookie), goodbye)] });
  route(app, `${auth}/logout-all`, { post: [...signedIn, logoutAll(sessions, sessionCookie(cookie))] });
}

type SignInParts = Parts & SharedBySignIn;

function signInByPassword(app: Express, auth: string, parts: SignInParts & { users: Users }): void {
  const { byAddress, origin, session, limit, users, config, attempts: counts } = parts;
  const body = jsonBody({ maxBytes: MAX_LOGIN_BYTES, timeoutMs: BODY_TIMEOUT_MS });
  const options = { ...config.login, addressOf: clientAddress, accountOf };
  const { refuse, attempt } = loginAttempts(limit, counts, options);
  route(app, `${auth}/login`, {
    post: [byAddress, origin, body, ...refuse, session, login(users, config.session, attempt)],
  });
}

function signInAtProvider(
  app: Express,
  auth: string,
  parts: SignInParts & { provider: IdentityProvider },
): void {
  const { byAddress, session, cookie, provider, sessions, counts, config } = parts;
  const flows = signInFlows({ ...config.session, ...cookie, realm: realmOf(config) });
  const common = { provider, flows, authPath: auth };
  const body = formBody({ maxBytes: MAX_LOGOUT_TOKEN_BYTES, timeoutMs: BODY_TIMEOUT_MS });
  const once = onceOnly(counts, 'logout-token', LOGOUT_TOKEN_LIFE_MS);
  route(app, `${auth}/login`, { get: [byAddress, startSignIn(common)] });
  const callbackPath = `${auth}/callback`;
  const before = sessionBefore({ ...config.session, ...cookie, sessions, callbackPath });
  route(app, callbackPath, {
    get: [byAddress, session, endSignIn({ ...common, before, sessions, limits: config.session })],
  });
  app.use([`${auth}/login`, callbackPath], letGoWhenRefused(), signInPage(`${auth}/login`));
  route(app, `${auth}/backchannel-logout`, {
    post: [byAddress, body, backchannelLogout({ provider, sessions, once })],
  });
}

function signInAsGuest(app: Express, auth: string, parts: SignInParts): void {
  const { byAddress, origin, session, bySession, limit, sessions, config } = parts;
  const newGuests = guestLimit(limit, {
    perAddress: config.guestsPerAddress,
    windowMs: config.login.windowMs,
    guestOf: newGuestOf(clientAddress),
  });
  route(app, `${auth}/guest`, {
    post: [byAddress, origin, session, bySession, newGuests, guest(sessions, config.session)],
  });
}

function message(app: Express, parts: Parts, shared: Shared): void {
  const { byAddress, origin, session, bySession } = shared;
  const { config, sessions, budgets, bots, streams, upstreamUrl, open, logger, metrics } = parts;
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const slots = slotWaits(budgets, rate);
  const limits = config.session;
  const watch = watchSessions({ sessions, limits, endMessages: open.endSession });
  route(app, `${config.basePath}/generic/ns/:namespace/bot-provider/:botProviderName/message/sse`, {
    post: [
      byAddress,
      origin,
      session,
      requireSession(),
      openMessage(open),
      bySession,
      extendSession({ sessions, limits, watch }),
      allowedBot(config.bots),
      nameHolders({ realm: realmOf(config), guests: config.authMode === 'guest' }),
      streamCap(streams, config.maxStreams),
      jsonBody({ maxBytes: config.maxBodyBytes, timeoutMs: BODY_TIMEOUT_MS }),
      endpointBudget(slots, rate),
      relayMessage({
        ...config.upstream,
        baseUrl: upstreamUrl,
        send: createUpstream(upstreamUrl).send,
        keyRings: bots.keyRings,
        ...paced(slots),
        logger,
        observer: metrics && relayMetrics(metrics),
      }),
    ],
  });
}

function isHttps({ publicUrl }: Config): boolean {
  return publicUrl.protocol === 'https:';
}
