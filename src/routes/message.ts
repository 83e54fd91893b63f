import { botName, type PathShape } from '../bots/bot.ts';
import { asSameMessage, Problem } from '../errors.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import type { CarriedStream } from '../http/locals.ts';
import { readJson } from '../http/read-json.ts';
import type { Operation } from '../relay/operations/operation-table.ts';
import type { JoinedRun } from '../runs/join-run.ts';
import { conversationKey, resetsConversation, runName } from '../runs/run-name.ts';
import { NAME_IS_FREE } from '../runs/run-problems.ts';
import type { BotServices } from './bot-services.ts';
import { findBot, findSession } from './bot-steps.ts';
import { beginRun, type MessageOwner, type ReadMessage } from './new-run.ts';
import { lastEventIdOf, type RunClient, readerClient, readRun, registerReader } from './read-run.ts';
import { type Releases, releaseAll, type Steps } from './route.ts';

/**
 * `POST …/message/sse`: a message joins its run, or begins it, and its client reads that. The steps of the request from
 * top to bottom; those of a new run are in `beginRun`.
 */
export function messageRoute(services: BotServices): (operation: Operation, shape: PathShape) => Steps {
  return ({ group }, shape) =>
    async function message(req, res) {
      const stop = abortWhenLeft(res);
      const stream: CarriedStream = { bytes: 0 };
      const releases: Releases = [];
      try {
        const missedRemovals = services.watch.missedRemovals();
        const found = await findSession(services, { req, res, stop, releases, kind: 'message' });
        const session = await services.sessions.use(found);
        releases.push(services.watch.add({ session, missedRemovals, bytes: () => stream.bytes }));
        const bot = findBot(services, { req, res, group });
        const userId = session.user.id;
        const holders = services.holdersOf(userId, () => clientAddress(req));
        const client = { req, res, bot, session, stop, stream, releases };
        const joined = await joinOrBegin(services, { ...client, userId, shape, holders });
        await readRun(services, joined, client);
      } catch (error) {
        throw services.canJoin && error instanceof Problem ? asSameMessage(error) : error;
      } finally {
        releaseAll(releases);
      }
    };
}

/** How often a message may join a run of another instance that ends without having been sent. */
const MAX_TRIES = 10;

/** A request with a message that has passed all checks before its body. */
type MessageClient = RunClient & MessageOwner & { readonly req: Parameters<Steps>[0] };

/**
 * Resolves when the stream begins, or has failed. A function of its own, so that the body is freed while the stream
 * goes on.
 */
async function joinOrBegin(services: BotServices, client: MessageClient): Promise<JoinedRun> {
  const { req, res, userId, bot, shape, holders } = client;
  const counted = services.countBody(holders);
  let hasBegun = false;
  try {
    const message = await readMessage(services, client, counted.count);
    const { name, conversation, lastEventId } = message;
    const { url, headers } = req;
    const { locals } = res;
    const about = { userId, bot, shape, holders, url, headers, locals };
    // A stop drops no resumption.
    const channel = lastEventId === undefined ? conversation?.upstream : undefined;
    const entry = {
      ...{ name, lastEventId, requestId: locals.requestId, waitsSince: performance.now() },
      client: readerClient(services, client),
      conversation: channel === undefined ? undefined : conversationKey({ bot: botName(bot), channel }),
    };
    for (let tries = 1; ; tries++) {
      const joined = await services.runs.joinOrBegin(entry);
      registerReader(services, joined, client);
      const { run, how } = joined;
      if (how === 'begun' && run.state !== 'ended') {
        hasBegun = true;
        beginRun(services, { run, about, freeBody: counted.release }, message);
      }
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
  services: BotServices,
  { req, userId, holders, bot, stop }: MessageClient,
  count: (bytes: number) => void,
): Promise<ReadMessage> {
  const { bytes, value } = await readJson(req, { ...services.body, count });
  const endpoint = botName(bot);
  const { url, headers } = req;
  const { body, conversation } = services.conversations.ofMessage(bytes, { url, userId });
  await services.blobs.check(bytes, { bot: endpoint, userId, conversation });
  // The client may have left while the body came.
  stop.signal.throwIfAborted();
  // This hash has the realm in it: the same id in another realm is another user.
  const user = holders.user;
  const about = { user, bot: endpoint, channel: conversation?.upstream, headers, value, bytes };
  const name = services.canJoin ? runName({ ...about, query: services.forwardedQuery(url) }) : undefined;
  return { body, conversation, name, resets: resetsConversation(value), lastEventId: lastEventIdOf(headers) };
}
