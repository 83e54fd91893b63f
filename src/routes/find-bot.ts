import type { Request, Response } from 'express';
import { type Bot, botName, type OperationGroup } from '../bots/bot.ts';
import type { RequireGroup } from './operation-group.ts';

/** What finds the bot of a request. */
export interface BotFinding {
  readonly allowedBot: (parameters: Request['params']) => Bot;
  readonly requireGroup: RequireGroup;
}

/** A request whose session is found. */
export interface BotRequest {
  readonly req: Request;
  readonly res: Response;
  readonly group: OperationGroup;
}

/**
 * The bot that the path names.
 * @throws Problem `unknown_bot`, or what says that the group of operations is off for this bot
 */
export function findBot(route: BotFinding, { req, res, group }: BotRequest): Bot {
  const bot = route.allowedBot(req.params);
  res.locals.bot = botName(bot);
  route.requireGroup(group, bot);
  return bot;
}
