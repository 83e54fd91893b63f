import type { Response } from 'express';
import type { Bot } from '../bots/bot.ts';
import { asProblem, isFault } from '../errors.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';
import type { Logger } from '../logger.ts';
import { failInStream } from '../relay/message/stream-ending.ts';

export interface MessageFailure {
  readonly error: unknown;
  readonly res: Response;
  readonly bot: Bot;
  readonly logger: Logger;
}

/** Answers a message that failed after it had left for the bot service, as a stream with one error event. */
export function answerInStream({ error, res, bot, logger }: MessageFailure): void {
  if (error === CLIENT_LEFT || res.destroyed) return;
  const { requestId } = res.locals;
  const problem = asProblem(error, { maybeStarted: true });
  if (isFault(problem)) logger.error({ requestId, err: problem.cause }, 'fault');
  failInStream(res, { problem, identity: { requestId, bot }, log: res.locals });
}
