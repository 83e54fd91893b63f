import type { Request, Response } from 'express';
import { type Bot, botName, type PathShape } from '../bots/bot.ts';
import type { Conversation } from '../guard/conversations.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-connection.ts';
import { holdersApart } from '../pace/holders.ts';
import { beginStream, streamHead } from '../relay/message/begin-stream.ts';
import { carryLive } from '../relay/message/carry-stream.ts';
import { type Deadlines, deadlines } from '../relay/message/deadlines.ts';
import { judgeLive, type LiveVerdict, type Refusal } from '../relay/message/judge-response.ts';
import type { ResumptionTurn } from '../relay/message/resumption-attempt.ts';
import { sendAndJudge } from '../relay/message/send-and-judge.ts';
import { endpointOf, type Operation } from '../relay/operations/operation-table.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import type { MessageKeys } from '../relay/upstream/message-keys.ts';
import { observedSend } from '../relay/upstream/relay-observer.ts';
import type { UpstreamRequest } from '../relay/upstream/send.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';
import { MESSAGE_PATH } from '../relay/upstream/upstream-target.ts';
import type { BotServices } from './bot-services.ts';
import { findBot, findSession } from './bot-steps.ts';
import type { OperationInput } from './operation-input.ts';
import { recheckSandbox } from './own-sandbox.ts';
import { requestKeys } from './request-keys.ts';
import { type Releases, releaseAll, type Steps } from './route.ts';

/**
 * A live stream of the bot service: what was said in a conversation so far and then what is said, or the changes of a
 * sandbox's files. It runs no bot and has no end. Its steps from top to bottom.
 */
export function liveRoute(services: BotServices): (operation: Operation, shape: PathShape) => Steps {
  return (operation, shape) =>
    async function live(req, res) {
      res.locals.isLive = true;
      const stop = abortWhenLeft(res);
      const releases: Releases = [];
      try {
        const missedRemovals = services.watch.missedRemovals();
        const session = await findSession(services, { req, res, stop, releases, kind: 'live' });
        const { user } = session;
        await services.sessions.confirm(session);
        const bot = findBot(services, { req, res, group: operation.group });
        const holders = services.holdersOf(user.id, () => clientAddress(req));
        // Live streams have places of their own, apart from messages; so do those that watch files.
        const liveHolders = holdersApart(operation.path === MESSAGE_PATH ? 'live' : 'watch', holders);
        releases.push(await services.takePlace(liveHolders));
        // Bytes of a live stream do not extend the session, so that it ends if its user does nothing else.
        releases.push(services.watch.add({ session, missedRemovals, bytes: () => 0 }));
        const input = await services.readOperation(operation, req, { userId: user.id });
        const accepted = { operation, shape, bot, userId: user.id };
        const { signal } = stop;
        const { headers } = req;
        const { requestId } = res.locals;
        const about = { ...accepted, holders, headers, requestId, signal };
        await services.checkSandbox(input, about);
        releases.push(recheckSandbox(() => services.checkSandbox(input, about), stop));
        const limits = deadlines(stop, services.times);
        releases.push(limits.clear);
        const endpoint = endpointOf(operation, botName(bot));
        const request = requestOf(services, { req, res, ...accepted, input });
        const turn = await services.takeLiveTurn({ endpoint, holders: liveHolders, signal, log: res.locals });
        const sending = { res, bot, conversation: input.conversation(), request, turn, limits, signal };
        const answered = await sendUntilTaken(services, sending);
        if (answered.kind === 'not_found') answerNotFound(res, answered);
        else await carry(services, { ...sending, ...answered, releases });
      } finally {
        releaseAll(releases);
      }
    };
}

/** A request that has passed all checks. */
interface LiveRequest {
  readonly req: Request;
  readonly res: Response;
  readonly operation: Operation;
  readonly shape: PathShape;
  readonly bot: Bot;
  readonly userId: string;
  readonly input: OperationInput;
}

/** The request upstream. */
function requestOf(
  services: BotServices,
  { req, res, operation, input, ...accepted }: LiveRequest,
): UpstreamRequest {
  const { requestId } = res.locals;
  const { url, headers } = req;
  const { query, sandbox } = input;
  const target = { ...accepted, path: operation.path, sandbox, query };
  return services.upstreamRequest({ ...target, url, headers, requestId, body: undefined });
}

/** A request that has its slot. */
interface LiveSending {
  readonly res: Response;
  readonly bot: Bot;
  readonly conversation: Conversation | undefined;
  readonly request: UpstreamRequest;
  readonly turn: ResumptionTurn;
  readonly limits: Deadlines;
  readonly signal: AbortSignal;
}

/** The answer: a stream, or the service's own word that there is no such conversation or path. */
type LiveAnswer = Exclude<LiveVerdict, Refusal> & {
  readonly answer: UpstreamAnswer;
  /** Masks the keys of this request in a text, and puts the client's id in the place of the upstream id. */
  readonly mask: (text: string) => string;
};

/** Sends the request with the next key until the service answers other than by refusing the key. */
async function sendUntilTaken(services: BotServices, sending: LiveSending): Promise<LiveAnswer> {
  const { res, bot, conversation, turn, limits } = sending;
  const named = { bot: botName(bot), requestId: res.locals.requestId, conversation: () => conversation };
  const { keys, mask } = requestKeys(services, named);
  for (;;) {
    const verdict = await sendOnce(services, sending, { key: keys.next(), mask });
    limits.clear();
    if (verdict.kind === 'stream' || verdict.kind === 'not_found') {
      keys.accepted();
      return { ...verdict, mask };
    }
    if (verdict.kind === 'asked_to_wait') {
      await turn.refused((verdict.problem.options.retryAfter ?? 1) * 1000);
      throw verdict.problem;
    }
    const failure = keys.refused(verdict.problem);
    if (failure) throw failure;
    await turn.takeExtraSlot();
  }
}

/** Sends the request once. */
function sendOnce(
  services: BotServices,
  { res, request, turn, limits, signal }: LiveSending,
  { key, mask }: { readonly key: ReturnType<MessageKeys['next']>; readonly mask: (text: string) => string },
) {
  // There is a deadline for the headers, and none for the stream.
  const start = () => limits.start(Number.POSITIVE_INFINITY);
  start();
  return sendAndJudge(judgeLive, {
    ...{
      send: observedSend(services.send, key.fingerprint, services.observer),
      request: withKey(request, key),
    },
    ...{ mask, signal, onSent: turn.sent },
    async onDelayed() {
      limits.clear();
      await turn.renewSlot();
      start();
    },
    onStatus(status) {
      res.locals.upstreamStatus = status;
    },
  });
}

/** Answers with the service's 404 and its JSON. */
function answerNotFound(res: Response, { answer, json, mask }: Extract<LiveAnswer, { kind: 'not_found' }>) {
  res.statusCode = 404;
  res.setHeader('Content-Type', 'application/json');
  res.setHeader('Content-Length', json.length);
  const trace = answer.headers['x-trace-id'];
  if (trace !== undefined && mask(trace) === trace) res.setHeader('X-Trace-Id', trace);
  res.end(json);
}

/** Carries the stream to the client until it ends. */
async function carry(
  services: BotServices,
  carried: LiveSending & Pick<LiveAnswer, 'answer' | 'mask'> & { readonly releases: Releases },
): Promise<void> {
  const { res, bot, signal, answer, mask, conversation, releases } = carried;
  const { heartbeats, holding, observer, logger } = services;
  const { requestId } = res.locals;
  const stream = { bytes: 0 };
  res.locals.stream = stream;
  beginStream(res, streamHead(answer, mask));
  releases.push(observer.liveStreamStarted());
  await carryLive({
    ...{ answer, res, stream, signal, log: res.locals, heartbeats, holding },
    identity: { requestId, bot },
    channel: conversation,
    onHeartbeat: observer.heartbeatSent,
    onIncompleteEnd: observer.incompleteEnd,
    onFault: (err) => logger.error({ requestId, err }, 'fault'),
  });
}
