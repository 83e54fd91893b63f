import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import type { Sessions } from '../authenticate/sessions/sessions.ts';
import { type Bot, botName } from '../bots/bot.ts';
import type { OperationGroup } from '../bots/operation-groups.ts';
import type { RequireGroup } from './operation-group.ts';

/** What finds the bot of a request. */
export interface BotFinding {
  readonly allowedBot: (parameters: Request['params']) => Bot;
  readonly requireGroup: RequireGroup;
  readonly sessions: Pick<Sessions, 'confirm'>;
}

/** A request whose session is found. */
export interface BotRequest {
  readonly req: Request;
  readonly res: Response;
  readonly session: LiveSession;
  readonly group: OperationGroup;
}

/**
 * The bot that the path names. Who is not signed in any more is told that first, and not which bots there are.
 * @throws Problem `unauthenticated`; `unknown_bot`, or what says that the group of operations is off for this bot
 */
export function findBot(route: BotFinding, { req, res, session, group }: BotRequest): Bot | Promise<never> {
  try {
    const bot = route.allowedBot(req.params);
    res.locals.bot = botName(bot);
    route.requireGroup(group, bot);
    return bot;
  } catch (error) {
    return route.sessions.confirm(session).then(() => {
      throw error;
    });
  }
}
