import type { Express } from 'express';
import { operationRoutes } from './bot-operations.ts';
import { dependenciesOf } from './dependencies.ts';
import { liveRoute } from './live-stream.ts';
import { messageRoute } from './message.ts';
import { runRoute } from './message-run.ts';
import { logoutAnswer } from './oidc.ts';
import { operationRoute } from './operations.ts';
import type { Parts } from './parts.ts';
import { route } from './route.ts';
import { logout, logoutAll, showSession } from './session.ts';
import type { SharedSteps } from './shared-steps.ts';

/** The routes of messages and of other operations of the bot service. */
export function botRoutes(app: Express, parts: Parts, shared: SharedSteps): void {
  const dependencies = dependenciesOf(parts, shared);
  operationRoutes(app, parts.config.basePath, {
    message: messageRoute(dependencies),
    run: runRoute(dependencies),
    live: liveRoute(dependencies),
    operation: operationRoute(dependencies),
  });
}

/** The routes of a session, for all ways to sign in. */
export function sessionRoutes(app: Express, { config, signIn }: Parts, steps: SharedSteps): void {
  const auth = `${config.basePath}/auth`;
  const own = { ...steps, logoutAnswer: signIn.mode === 'oidc' ? logoutAnswer(signIn.provider) : undefined };
  route(app, `${auth}/session`, { get: showSession(own) });
  route(app, `${auth}/logout`, { post: logout(own) });
  route(app, `${auth}/logout-all`, { post: logoutAll(own) });
}

/** The routes of additional pages, such as the chat page. */
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
