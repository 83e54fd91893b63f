import type { Express } from 'express';
import { botRoute, PATH_SHAPES, type PathShape } from '../bots/bot.ts';
import { OPERATIONS, type Operation } from '../relay/operations/operation-table.ts';
import type { BotServices } from './bot-services.ts';
import type { Dependencies } from './dependencies.ts';
import { liveRoute } from './live-stream.ts';
import { messageRoute } from './message.ts';
import { runRoute } from './message-run.ts';
import { logoutAnswer } from './oidc.ts';
import { operationRoute } from './operations.ts';
import { type Methods, route, type Steps } from './route.ts';
import { logout, logoutAll, showSession } from './session.ts';
import type { SharedSteps } from './shared-steps.ts';

export { METHODS } from '../relay/operations/operation-table.ts';

/** Makes the steps of an operation, for one shape of its path. */
type StepsOf = (operation: Operation, shape: PathShape) => Steps;

/** Serves every operation of the table, in both shapes of its path, below the base path. */
export function botRoutes(app: Express, { config }: Dependencies, services: BotServices): void {
  const stepsOf: Readonly<Record<Operation['carriedBy'], StepsOf>> = {
    message: messageRoute(services),
    run: runRoute(services),
    live: liveRoute(services),
    proxy: operationRoute(services),
  };
  for (const path of new Set(OPERATIONS.map((operation) => operation.path))) {
    const operations = OPERATIONS.filter((operation) => operation.path === path);
    for (const shape of PATH_SHAPES) {
      const methods: Methods = Object.fromEntries(
        operations.map((one) => [one.method.toLowerCase(), stepsOf[one.carriedBy](one, shape)]),
      );
      route(app, `${config.basePath}${botRoute(shape)}/${path}`, { ...methods, withoutHead: true });
    }
  }
}

/** The routes of a session, for all ways to sign in. */
export function sessionRoutes(app: Express, { config, signIn }: Dependencies, steps: SharedSteps): void {
  const auth = `${config.basePath}/auth`;
  const own = { ...steps, logoutAnswer: signIn.mode === 'oidc' ? logoutAnswer(signIn.provider) : undefined };
  route(app, `${auth}/session`, { get: showSession(own) });
  route(app, `${auth}/logout`, { post: logout(own) });
  route(app, `${auth}/logout-all`, { post: logoutAll(own) });
}

/** The routes of additional pages, such as the chat page. */
export function pageRoutes(
  app: Express,
  { config, pages }: Dependencies,
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
