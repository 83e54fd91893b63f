import { botName } from '../bots/bot.ts';
import type { MessageRoute } from './message-parts.ts';
import type { MessageClient } from './message-steps.ts';

/**
 * Makes the function that asks whether a conversation may be claimed for a message with these bytes: a message that is
 * refused for its place or its files must not claim it.
 */
export function freeChannel(
  route: MessageRoute,
  client: MessageClient,
  bytes: Buffer,
): (id: string) => Promise<boolean> {
  return async function isFree(id) {
    const { req, res, userId, bot, shape, holders, stop, place } = client;
    await place.keep();
    const conversation = { client: id, upstream: id };
    await route.blobs.check(bytes, { bot: botName(bot), userId, conversation });
    const { requestId } = res.locals;
    const about = { userId, bot, shape, holders, headers: req.headers, requestId, signal: stop.signal };
    return !(await route.askMetadata(id, about));
  };
}
