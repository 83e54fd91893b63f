import { botName } from '../bots/bot.ts';
import type { PathShape } from '../bots/bot-path.ts';
import { Problem } from '../errors.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-left.ts';
import type { CarriedStream } from '../http/locals.ts';
import { readJson } from '../http/read-json.ts';
import { type Progress, RUN_ELSEWHERE } from '../join/run.ts';
import { resetsConversation, runName } from '../join/run-name.ts';
import { beginStream, streamHead } from '../relay/message/begin-stream.ts';
import { carryTo } from '../relay/message/carry-stream.ts';
import { deadlines } from '../relay/message/deadlines.ts';
import { lastEventIdOf, messageDeadline } from '../relay/message/message-deadline.ts';
import { nameOfMessage } from '../relay/message/message-starts.ts';
import { responseSink } from '../relay/message/response-sink.ts';
import { sendAndJudge } from '../relay/message/send-and-judge.ts';
import type { StreamSink } from '../relay/message/stream-sink.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import { asAnswerLost } from '../relay/upstream/answer-lost.ts';
import { observedSend } from '../relay/upstream/observed-send.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';
import { MESSAGE_PATH } from '../relay/upstream/upstream-target.ts';
import { pendingPlace, refusedAfter } from './admission.ts';
import { askEarly, enterRun } from './enter-run.ts';
import { findBot } from './find-bot.ts';
import { findingByCount, findSession } from './find-session.ts';
import { answerInStream } from './message-failure.ts';
import type { MessageRoute } from './message-parts.ts';
import {
  type Answered,
  type Carried,
  type MessageClient,
  type MessageTask,
  ownTask,
  type ReadMessage,
  runHold,
  type Seated,
  type Sending,
  type Way,
} from './message-steps.ts';
import { requestKeys } from './request-keys.ts';
import type { Steps } from './route.ts';
import { headOf, readRun } from './run-seat.ts';
import { SENT_AGAIN } from './sent-again.ts';

/** `POST …/message/sse`: the steps of a message, from top to bottom. */
export function messageRoute(route: MessageRoute): (shape: PathShape) => Steps {
  const finding = findingByCount(route);
  return (shape) =>
    async function message(req, res) {
      const stop = abortWhenLeft(res);
      const stream: CarriedStream = { bytes: 0 };
      const releases: (() => void)[] = [];
      try {
        const misses = route.watch.misses();
        const session = await findSession(finding, { req, res, stop, releases, kind: 'message' });
        const userId = session.user.id;
        const bot = await findBot(route, { req, res, session, group: 'message' });
        const holders = route.holdersOf(userId, () => clientAddress(req));
        const used = route.sessions.use(session).then(route.watch.extended);
        const place = pendingPlace(used, route.takePlace(holders));
        releases.push(route.watch.follow({ session, misses, bytes: () => stream.bytes }));
        const progress: Progress = { hasLeft: false, mayHaveStarted: false };
        const who = { req, res, session, userId, bot, shape, holders, place };
        const client: MessageClient = { ...who, stop, stream, releases, progress, run: undefined };
        releases.push(() => client.run || place.release());
        // A body that is here already is read meanwhile.
        if (!req.complete) await place.granted;
        const way = await answerTo(route, client);
        if (way && 'seat' in way) await readRun(way, route, client);
        else if (way) await carryHere(route, way, client);
      } finally {
        for (const release of releases.reverse()) release();
      }
    };
}

/** Carries the stream of a message that only this request can have. */
async function carryHere(route: MessageRoute, carried: Carried, client: MessageClient): Promise<void> {
  const { res, bot, stream } = client;
  res.locals.stream = stream;
  beginStream(res, carried.answered.head);
  const identity = { requestId: res.locals.requestId, bot };
  const beats = { heartbeats: route.heartbeats, onHeartbeat: route.observer.heartbeatSent };
  await carry(route, carried, responseSink({ res, identity, stream, log: res.locals, ...beats }));
}

/** Carries the stream of a message until it ends. */
export async function carry(
  route: MessageRoute,
  { task, answered }: Carried,
  sink: StreamSink,
): Promise<void> {
  const { userId, bot, shape, holders, locals, stop, releases } = task;
  const { answer, kept, deadline, conversation } = answered;
  if (kept) releases.push(kept.release);
  releases.push(route.observer.streamStarted());
  const { requestId } = locals;
  const { isComplete, openRun } = await carryTo(sink, {
    answer,
    signal: stop.signal,
    log: locals,
    holding: route.holding,
    endEvents: route.endEvents,
    lastEventId: lastEventIdOf(task.headers),
    channel: conversation,
    healer: kept?.healer,
    onIncompleteEnd: route.observer.incompleteEnd,
    onFault: (err) => route.logger.error({ requestId, err }, 'fault'),
  });
  if (isComplete) deadline.ended();
  if (openRun !== undefined && conversation && stop.signal.reason !== RUN_ELSEWHERE) {
    const ids = { channel: conversation.upstream, runId: openRun, userId };
    route.suspendLeftRun({ shape, bot, holders, requestId, ...ids });
  }
}

/**
 * Sends a message, or joins its run. It answers itself that the message was stopped, after which no client sends it
 * again, and with FAILURES=stream what fails after the message has left.
 */
async function answerTo(route: MessageRoute, client: MessageClient): Promise<Way | undefined> {
  try {
    const way = await refusedAfter(client.place, sendOrJoin(route, client));
    return 'task' in way ? way : { ...way, head: await headOf(way.run, way.seat, client) };
  } catch (error) {
    const isStopped = error instanceof Problem && error.code === 'stopped';
    if (!isStopped && (route.failures === 'status' || !client.progress.hasLeft)) throw error;
    answerInStream({ error, res: client.res, bot: client.bot, logger: route.logger });
    return undefined;
  }
}

/** Reads the message, and joins its run or sends it. A function of its own, so that the body is freed after it. */
async function sendOrJoin(route: MessageRoute, client: MessageClient): Promise<Carried | Seated> {
  const message = await readMessage(route, client);
  const seated = await enterRun(route, client, { message, sending: { sendMessage, carry } });
  if (seated) return seated;
  const task = ownTask(client, askEarly(route, client));
  return { task, answered: await sendMessage(route, task, message) };
}

async function readMessage(route: MessageRoute, client: MessageClient): Promise<ReadMessage> {
  const { req, res, userId, bot, shape, holders, stop, place } = client;
  const { bytes, value } = await readJson(req, route.body);
  const endpoint = botName(bot);
  const { url, headers } = req;
  const lastEventId = lastEventIdOf(headers);
  const { requestId } = res.locals;
  const about = { userId, bot, shape, holders, headers, requestId, signal: stop.signal };
  // A message that is refused for its place or its files must not claim the conversation.
  const isFree = async (id: string) => {
    await place.keep();
    await route.blobs.check(bytes, { bot: endpoint, userId, conversation: { client: id, upstream: id } });
    return !(await route.askMetadata(id, about));
  };
  const { body, conversation } = await route.conversations.ofMessage(bytes, {
    url,
    userId,
    bot: endpoint,
    isFree: lastEventId !== undefined ? undefined : isFree,
  });
  await route.blobs.check(bytes, { bot: endpoint, userId, conversation });
  const hash = nameOfMessage(userId, endpoint, bytes);
  const query = route.forwardedQuery(url);
  const channel = conversation?.upstream;
  const named = { userId, bot: endpoint, channel, query, headers, value, bytes, hash };
  const name = route.joining.runs && runName(named);
  return { body, conversation, hash, name, resets: resetsConversation(value), lastEventId, place };
}

/** Waits for a slot and sends. */
async function sendMessage(route: MessageRoute, task: MessageTask, message: ReadMessage): Promise<Answered> {
  const { userId, bot, shape, holders, url, headers, locals, stop, releases, setHeader, keep, early } = task;
  const { body, conversation, hash: name, lastEventId, place } = message;
  const endpoint = botName(bot);
  const { requestId } = locals;
  const isResumption = lastEventId !== undefined;
  const limits = deadlines(stop, route.times);
  releases.push(limits.clear);
  const { maxExecutionMs } = route.times;
  const deadline = messageDeadline({ starts: route.starts, name, isResumption, maxExecutionMs });
  deadline.check();
  await place.keep();
  const stoppedWith =
    conversation && !isResumption ? { bot: endpoint, channel: conversation.upstream } : undefined;
  const unsent = route.unsent.add(stoppedWith, stop);
  releases.push(unsent.close);
  const pacing = route.paceMessage({ endpoint, holders, signal: stop.signal, log: locals, early });
  for (const [name, value] of Object.entries(await pacing.start())) setHeader(name, value);
  const { keys, mask } = requestKeys(route, { bot: endpoint, requestId, conversation: () => conversation });
  const target = { bot, shape, path: MESSAGE_PATH, url };
  const request = route.upstreamRequest({ ...target, headers, requestId, userId, body });
  const answer = await sendUntilTaken(route, { request, keys, pacing, unsent, mask, limits, deadline, task });
  if (message.resets) await route.forgetRuns(bot, conversation, message.name);
  const kept = route.keepMessage({ request, bot: endpoint, holders, locals });
  if (typeof kept?.healer === 'object') keep(() => runHold(task, { request, conversation, limits }));
  return { answer, head: streamHead(answer, mask), deadline, kept, conversation };
}

/** Sends the message with the next key until the service takes it or refuses it finally. */
async function sendUntilTaken(route: MessageRoute, sending: Sending): Promise<UpstreamAnswer> {
  const { request, keys, pacing, unsent, mask, limits, deadline, task } = sending;
  const { progress, locals, stop, onRefused } = task;
  const onStatus = (status: number | undefined) => {
    locals.upstreamStatus = status;
    progress.upstreamStatus = status;
  };
  const onSent = () => {
    progress.mayHaveStarted = true;
    progress.hasLeft = true;
    unsent.sent();
    pacing.sent();
  };
  try {
    for (;;) {
      // A slot may have become old during the round trip.
      if (await unsent.leave()) await pacing.renewSlot();
      await task.mayLeave();
      const key = keys.next();
      const send = observedSend(route.send, key.fingerprint, route.observer);
      limits.start(deadline.begin());
      const verdict = await sendAndJudge({
        ...{ send, request: withKey(request, key), mask, onStatus, signal: stop.signal, onSent },
        mayStart: task.isSure,
        async onDelayed() {
          await pacing.renewSlot();
          await task.mayLeave();
        },
      });
      if (verdict.kind === 'stream') {
        limits.answered();
        keys.accepted();
        pacing.judged(true);
        return verdict.answer;
      }
      limits.clear();
      progress.mayHaveStarted = false;
      unsent.refused();
      onRefused();
      const waitToSendAgain = SENT_AGAIN[verdict.kind];
      await waitToSendAgain(verdict.problem, sending);
    }
  } catch (error) {
    pacing.judged(false);
    if (error instanceof Problem && error.code === 'upstream_refused') progress.mayHaveStarted = false;
    throw progress.mayHaveStarted ? asAnswerLost(error) : error;
  }
}
