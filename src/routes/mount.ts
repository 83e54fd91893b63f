import type { Express } from 'express';
import { realmOf } from '../authenticate/sessions/realm.ts';
import { watchSessions } from '../authenticate/sessions/session-watch.ts';
import { allowList } from '../bots/allow-list.ts';
import { nameHolders } from '../pace/holders.ts';
import { pacing } from '../pace/pacing.ts';
import { places } from '../pace/places.ts';
import { slotWaits } from '../pace/slot-waits.ts';
import { createHeartbeats } from '../relay/message/heartbeats.ts';
import { operationRequests, PATH_SHAPES } from '../relay/operations/operation-request.ts';
import { operationSender } from '../relay/operations/send-operation.ts';
import { UNOBSERVED } from '../relay/upstream/relay-observer.ts';
import { createUpstream } from '../relay/upstream/send.ts';
import { upstreamRequests } from '../relay/upstream/upstream-request.ts';
import { relayMetrics } from '../watch/relay-metrics.ts';
import { MESSAGE_PATH, messageRoute } from './message.ts';
import { farewell } from './oidc.ts';
import { suspendPath, suspendRoute } from './operations.ts';
import type { Parts } from './parts.ts';
import { route } from './route.ts';
import { logout, logoutAll, showSession } from './session.ts';
import { BODY_TIMEOUT_MS, type SharedSteps } from './shared-steps.ts';

/** The routes of messages and of other operations of the bot service. */
export function botRoutes(app: Express, parts: Parts, shared: SharedSteps): void {
  const { config, sessions: store, budgets, bots, streams, upstreamUrl, open, logger, metrics } = parts;
  const upstream = { ...config.upstream, baseUrl: upstreamUrl };
  const rate = { ...config.rate, limitOf: bots.limitOf };
  const observer = metrics ? relayMetrics(metrics) : UNOBSERVED;
  const steps = {
    ...shared,
    logger,
    observer,
    allowedBot: allowList(config.bots),
    holdersOf: nameHolders({ realm: realmOf(config), guests: config.authMode === 'guest' }),
    paceMessage: pacing(slotWaits(budgets, rate), rate),
    keyRings: bots.keyRings,
  };
  const message = messageRoute({
    ...steps,
    open,
    watch: watchSessions({ sessions: store, limits: config.session, endMessages: open.endSession }),
    takePlace: places(streams, config.maxStreams),
    body: { maxBytes: config.maxBodyBytes, timeoutMs: BODY_TIMEOUT_MS },
    upstreamRequest: upstreamRequests(upstream),
    send: createUpstream(upstreamUrl).send,
    times: upstream,
    heartbeats: createHeartbeats(upstream.heartbeatMs),
  });
  route(app, config.basePath + MESSAGE_PATH, { post: message });
  const suspend = suspendRoute({
    ...steps,
    operationRequest: operationRequests(upstream),
    send: operationSender({ ...upstream, observer }),
  });
  for (const shape of PATH_SHAPES) {
    route(app, config.basePath + suspendPath(shape), { post: suspend(shape) });
  }
}

/** What a browser asks of its session, however its user signed in. */
export function sessionRoutes(app: Express, { config, signIn }: Parts, steps: SharedSteps): void {
  const auth = `${config.basePath}/auth`;
  const own = { ...steps, farewell: signIn.mode === 'oidc' ? farewell(signIn.provider) : undefined };
  route(app, `${auth}/session`, { get: showSession(own) });
  route(app, `${auth}/logout`, { post: logout(own) });
  route(app, `${auth}/logout-all`, { post: logoutAll(own) });
}

/** Pages that are served besides. */
export function pageRoutes(
  app: Express,
  { config, pages = [] }: Parts,
  { limitByAddress }: SharedSteps,
): void {
  for (const { path, handler } of pages) {
    route(app, config.basePath + path, {
      async get(req, res) {
        await limitByAddress(req, res);
        handler(req, res);
      },
    });
  }
}
