import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import { noSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { loggedBot } from '../bots/allow-list.ts';
import { type Bot, botName, type OperationGroup } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { LimitByAddress, LimitByKey } from '../pace/request-limits.ts';
import type { OpenKind, OpenMessages } from '../relay/message/open-messages.ts';
import type { Releases } from './route.ts';

/** What the first steps of every route of a bot need. */
interface SessionFinding {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Pick<Sessions, 'keyOf' | 'read'>;
  readonly limitBySession: LimitByKey;
  readonly open: Pick<OpenMessages, 'add'>;
}

/** A request that has just come. */
interface RequestArrival {
  readonly req: Request;
  readonly res: Response;
  /** Aborted when the client leaves, and from here on by a shutdown, and by the end of the session. */
  readonly stop: AbortController;
  /** Called when the request is over. */
  readonly releases: Releases;
  readonly kind: OpenKind;
}

/**
 * Finds the session of a request, within its limits. They are asked together in one round trip, and judged in this
 * order: the limit by address, the origin, the session, the limit by session. A page of another origin is not counted
 * for the session. The request is registered as open before its session is read, so that no end of the session is missed.
 * @throws Problem `too_many_attempts`, `cross_site_request` or `unauthenticated`; what has aborted the request
 */
export async function findSession(services: SessionFinding, arrival: RequestArrival): Promise<LiveSession> {
  const { req, res, stop, releases, kind } = arrival;
  res.locals.bot = loggedBot(req.params);
  const counted = services.limitByAddress(req, res);
  let key: string;
  try {
    key = keyOf(services, req);
  } catch (refusal) {
    await counted;
    throw refusal;
  }
  releases.push(services.open.add(stop, key, kind));
  const read = services.sessions.read(key);
  const countedForSession = services.limitBySession(req, res, key);
  const [session] = await Promise.allSettled([read, counted, countedForSession]);
  // The log line of a refusal names the user, too.
  if (session.status === 'fulfilled') res.locals.userId = session.value.user.id;
  await counted;
  const found = await read;
  await countedForSession;
  const { reason } = stop.signal;
  if (reason instanceof Problem && reason.code === 'session_ended') throw noSession();
  stop.signal.throwIfAborted();
  return found;
}

/** @throws Problem `cross_site_request` or `unauthenticated` if there is nothing to ask for */
function keyOf(services: SessionFinding, req: Request): string {
  services.checkOrigin(req.headers);
  const key = services.sessions.keyOf(req);
  if (key === undefined) throw noSession();
  return key;
}

/** Refuses an operation whose group is not enabled for the bot. @throws Problem `operation_not_enabled` */
type RequireGroup = (group: OperationGroup, bot: Bot) => void;

/** Makes the step that requires a group; `groupsOf` returns those that are enabled for `namespace/bot`. */
export function requireGroup(groupsOf: (bot: string) => readonly OperationGroup[]): RequireGroup {
  return function requireGroup(group, bot) {
    if (!groupsOf(botName(bot)).includes(group)) throw notEnabled();
  };
}

/** Its status is not 404, which clients of the bot service read as a fact about the conversation. */
function notEnabled(): Problem {
  return new Problem('operation_not_enabled', 'This operation is not enabled for this bot.');
}

/** What finds the bot of a request. */
interface BotFinding {
  readonly allowedBot: (parameters: Request['params']) => Bot;
  readonly requireGroup: RequireGroup;
}

/** A request whose session is found. */
interface BotRequest {
  readonly req: Request;
  readonly res: Response;
  readonly group: OperationGroup;
}

/**
 * The bot that the path names.
 * @throws Problem `unknown_bot`, or what says that the group of operations is off for this bot
 */
export function findBot(services: BotFinding, { req, res, group }: BotRequest): Bot {
  const bot = services.allowedBot(req.params);
  res.locals.bot = botName(bot);
  services.requireGroup(group, bot);
  return bot;
}
