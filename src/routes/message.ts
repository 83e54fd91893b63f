import { botName, type PathShape } from '../bots/bot.ts';
import { asSameMessage, Problem } from '../errors.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import type { CarriedStream } from '../http/locals.ts';
import { readJson } from '../http/read-json.ts';
import type { JoinedRun } from '../runs/join-run.ts';
import type { Run } from '../runs/run.ts';
import { conversationKey, resetsConversation, runName } from '../runs/run-name.ts';
import { NAME_IS_FREE } from '../runs/run-problems.ts';
import { findBot, findSession } from './bot-steps.ts';
import type { Dependencies } from './dependencies.ts';
import { beginRun, type MessageOwner, type ReadMessage } from './new-run.ts';
import { clientOf, lastEventIdOf, noteJoin, type RunClient, readRun } from './read-run.ts';
import type { Steps } from './route.ts';

/**
 * `POST …/message/sse`: a message joins its run, or begins it, and its client reads that. The steps of the request from
 * top to bottom; those of a new run are in `beginRun`.
 */
export function messageRoute(route: Dependencies): (shape: PathShape) => Steps {
  return (shape) =>
    async function message(req, res) {
      const stop = abortWhenLeft(res);
      const stream: CarriedStream = { bytes: 0 };
      const releases: (() => void)[] = [];
      try {
        const missedRemovals = route.watch.missedRemovals();
        const found = await findSession(route, { req, res, stop, releases, kind: 'message' });
        const session = await route.sessions.use(found);
        releases.push(route.watch.follow({ session, missedRemovals, bytes: () => stream.bytes }));
        const bot = findBot(route, { req, res, group: 'message' });
        const userId = session.user.id;
        const holders = route.holdersOf(userId, () => clientAddress(req));
        const client = { req, res, bot, session, stop, stream, releases };
        const joined = await joinOrBegin(route, { ...client, userId, shape, holders });
        await readRun(route, joined, client);
      } catch (error) {
        throw route.canJoin && error instanceof Problem ? asSameMessage(error) : error;
      } finally {
        for (let release = releases.pop(); release; release = releases.pop()) release();
      }
    };
}

/** How many runs a message joins, one after the other, that end without having sent it. */
const MAX_TRIES = 10;

/** A request with a message that has passed all checks before its body. */
type MessageClient = RunClient & MessageOwner & { readonly req: Parameters<Steps>[0] };

/** Resolves when the stream begins, or has failed. A function of its own, so that the body is freed while the stream goes on. */
async function joinOrBegin(route: Dependencies, client: MessageClient): Promise<JoinedRun> {
  const { req, res, userId, bot, shape, holders } = client;
  const counted = route.countBody(holders);
  let hasBegun = false;
  try {
    const message = await readMessage(route, client, counted.count);
    const { name, conversation, lastEventId } = message;
    const { url, headers } = req;
    const { locals } = res;
    const about = { userId, bot, shape, holders, url, headers, locals };
    const channel = lastEventId === undefined ? conversation?.upstream : undefined;
    const entry = {
      ...{ name, lastEventId, requestId: locals.requestId, since: performance.now() },
      client: clientOf(route, client),
      conversation: channel === undefined ? undefined : conversationKey({ bot: botName(bot), channel }),
      begin(run: Run) {
        hasBegun = true;
        beginRun(route, { run, about, freeBody: counted.release }, message);
      },
    };
    for (let tries = 1; ; tries++) {
      const joined = await route.runs.joinOrBegin(entry);
      noteJoin(route, joined, client);
      const isFree = await joined.reader.head().then(
        () => false,
        (error) => error === NAME_IS_FREE,
      );
      if (!isFree || tries === MAX_TRIES) return joined;
    }
  } finally {
    // A new run needs its body until it is sent, also when its client has left.
    if (!hasBegun) counted.release();
  }
}

async function readMessage(
  route: Dependencies,
  { req, userId, holders, bot, stop }: MessageClient,
  count: (bytes: number) => void,
): Promise<ReadMessage> {
  const { bytes, value } = await readJson(req, { ...route.body, count });
  const endpoint = botName(bot);
  const { url, headers } = req;
  const { body, conversation } = route.conversations.ofMessage(bytes, { url, userId });
  await route.blobs.check(bytes, { bot: endpoint, userId, conversation });
  // The client may have left while the body came.
  stop.signal.throwIfAborted();
  // The same id in another realm is another user.
  const user = holders.user;
  const about = { user, bot: endpoint, channel: conversation?.upstream, headers, value, bytes };
  const name = route.canJoin ? runName({ ...about, query: route.forwardedQuery(url) }) : undefined;
  return { body, conversation, name, resets: resetsConversation(value), lastEventId: lastEventIdOf(headers) };
}
