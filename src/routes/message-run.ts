import type { SessionWatch } from '../authenticate/sessions/session-watch.ts';
import type { Sessions } from '../authenticate/sessions/sessions.ts';
import { botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { Conversations } from '../guard/conversations.ts';
import { abortWhenLeft } from '../http/client-left.ts';
import { readQuery } from '../http/read-query.ts';
import { refuseBody } from '../http/refuse-body.ts';
import type { JoinableRuns } from '../join/joinable-runs.ts';
import { messageName } from '../join/run-name.ts';
import { lastEventIdOf } from '../relay/message/message-deadline.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import { findSession } from './find-session.ts';
import type { MessageRoute } from './message-parts.ts';
import type { Steps } from './route.ts';
import { headOf, joinRun, readRun, type SeatParts } from './run-seat.ts';

/** What it shares with a message. */
type SharedParts = 'limitByAddress' | 'checkOrigin' | 'limitBySession' | 'allowedBot' | 'requireGroup';

export interface RunRoute extends Pick<MessageRoute, SharedParts>, SeatParts {
  readonly sessions: Pick<Sessions, 'keyOf' | 'read' | 'use'>;
  readonly watch: SessionWatch;
  readonly conversations: Pick<Conversations, 'ofQuery'>;
}

/**
 * `GET …/message/run`: the stream of a message that was sent, by its id alone. It never sends anything to the bot
 * service. Its steps from top to bottom.
 */
export function runRoute(route: RunRoute): (operation: Operation) => Steps {
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
        const bot = route.allowedBot(req.params);
        res.locals.bot = botName(bot);
        route.requireGroup(group, bot);
        refuseBody(req.headers);
        const { url, headers } = req;
        const userId = session.user.id;
        const { upstream: channel } = await route.conversations.ofQuery({ url, userId, bot: botName(bot) });
        const id = readQuery(url, query).get('custom_message_id') ?? '';
        const message = messageName({ bot: botName(bot), channel, userId }, id);
        stop.signal.throwIfAborted();
        const client = { res, bot, session, stop, stream, releases };
        const { run, at, seat } = await runsOf(route).newest(message, {
          ...{ lastEventId: lastEventIdOf(headers), signal: stop.signal },
          join: (found) => ({ ...found, seat: joinRun(found, route, client) }),
        });
        const head = await headOf(run, seat, client);
        await readRun({ seat, at, head }, route, client);
      } finally {
        for (const release of releases.reverse()) release();
      }
    };
}

function runsOf({ joining }: RunRoute): JoinableRuns {
  if (!joining.runs) throw new Problem('run_over', 'Runs can not be joined here.');
  return joining.runs;
}
