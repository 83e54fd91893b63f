import { botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import { refuseBody } from '../http/body.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import { readQuery } from '../http/read-query.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import { messageName } from '../runs/run-name.ts';
import type { BotServices } from './bot-services.ts';
import { findBot, findSession } from './bot-steps.ts';
import { lastEventIdOf, readerClient, readRun, registerReader } from './read-run.ts';
import { type Releases, releaseAll, type Steps } from './route.ts';

/**
 * `GET …/message/run`: the stream of a message that was sent, by its id alone. It never sends anything to the bot
 * service. Its steps from top to bottom.
 */
export function runRoute(services: BotServices): (operation: Operation) => Steps {
  return ({ group, query = {} }) =>
    async function messageRun(req, res) {
      const stop = abortWhenLeft(res);
      const stream = { bytes: 0 };
      const releases: Releases = [];
      try {
        const missedRemovals = services.watch.missedRemovals();
        const found = await findSession(services, { req, res, stop, releases, kind: 'message' });
        const session = await services.sessions.use(found);
        releases.push(services.watch.add({ session, missedRemovals, bytes: () => stream.bytes }));
        const bot = findBot(services, { req, res, group });
        refuseBody(req.headers);
        if (!services.canJoin) throw new Problem('run_over', 'Runs can not be joined here.');
        const { url, headers } = req;
        const userId = session.user.id;
        const { upstream: channel } = services.conversations.ofQuery({ url, userId });
        const id = readQuery(url, query).get('custom_message_id') ?? '';
        const { user } = services.holdersOf(userId, () => clientAddress(req));
        const message = messageName({ bot: botName(bot), channel, user }, id);
        stop.signal.throwIfAborted();
        const client = { res, bot, session, stop, stream, releases };
        const entry = {
          requestId: res.locals.requestId,
          lastEventId: lastEventIdOf(headers),
          waitsSince: performance.now(),
          client: readerClient(services, client),
        };
        const joined = await services.runs.newest(message, entry);
        registerReader(services, joined, client);
        await readRun(services, joined, client);
      } finally {
        releaseAll(releases);
      }
    };
}
