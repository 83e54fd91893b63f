import { botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import { refuseBody } from '../http/body.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import { readQuery } from '../http/read-query.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import { messageName } from '../runs/run-name.ts';
import { findBot, findSession } from './bot-steps.ts';
import type { Dependencies } from './dependencies.ts';
import { clientOf, lastEventIdOf, noteJoin, readRun } from './read-run.ts';
import type { Steps } from './route.ts';

/**
 * `GET …/message/run`: the stream of a message that was sent, by its id alone. It never sends anything to the bot
 * service. Its steps from top to bottom.
 */
export function runRoute(route: Dependencies): (operation: Operation) => Steps {
  return ({ group, query = {} }) =>
    async function messageRun(req, res) {
      const stop = abortWhenLeft(res);
      const stream = { bytes: 0 };
      const releases: (() => void)[] = [];
      try {
        const missedRemovals = route.watch.missedRemovals();
        const found = await findSession(route, { req, res, stop, releases, kind: 'message' });
        const session = await route.sessions.use(found);
        releases.push(route.watch.follow({ session, missedRemovals, bytes: () => stream.bytes }));
        const bot = findBot(route, { req, res, group });
        refuseBody(req.headers);
        if (!route.canJoin) throw new Problem('run_over', 'Runs can not be joined here.');
        const { url, headers } = req;
        const userId = session.user.id;
        const { upstream: channel } = route.conversations.ofQuery({ url, userId });
        const id = readQuery(url, query).get('custom_message_id') ?? '';
        const { user } = route.holdersOf(userId, () => clientAddress(req));
        const message = messageName({ bot: botName(bot), channel, user }, id);
        stop.signal.throwIfAborted();
        const client = { res, bot, session, stop, stream, releases };
        const { requestId } = res.locals;
        const about = { requestId, lastEventId: lastEventIdOf(headers), since: performance.now() };
        const entry = { ...about, client: clientOf(route, client) };
        const joined = await route.runs.newest(message, entry);
        noteJoin(route, joined, client);
        await readRun(route, joined, client);
      } finally {
        for (const release of releases.reverse()) release();
      }
    };
}
