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
import { firstFailure, pendingPlace } from './admission.ts';
import { askEarly, enterRun } from './enter-run.ts';
import { findBot } from './find-bot.ts';
import { findingByCount, findSession } from './find-session.ts';
import { freeChannel } from './free-channel.ts';
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
        const missedRemovals = route.watch.missedRemovals();
        const session = await findSession(finding, { req, res, stop, releases, kind: 'message' });
        const userId = session.user.id;
        const found = findBot(route, { req, res, session, group: 'message' });
        const bot = found instanceof Promise ? await found : found;
        const holders = route.holdersOf(userId, () => clientAddress(req));
        const used = route.sessions.use(session).then(route.watch.extended);
        const place = pendingPlace(used, route.takePlace(holders));
        releases.push(route.watch.follow({ session, missedRemovals, bytes: () => stream.bytes }));
        const progress: Progress = { hasLeft: false, mayHaveStarted: false, upstreamStatus: undefined };
        const who = { req, res, session, userId, bot, shape, holders, place };
        const client: MessageClient = { ...who, stop, stream, releases, progress, run: undefined };
        releases.push(() => client.run || place.release());
        // A body that is here already is read meanwhile.
        if (!req.complete) await place.granted;
        const way = await answerTo(route, client);
        if (way && 'seat' in way) await readRun(way, route, client);
        else if (way) await carryHere(route, way, client);
      } finally {
        for (let release = releases.pop(); release; release = releases.pop()) release();
      }
    };
}

/** Carries the stream of a message that only this request can have. */
function carryHere(route: MessageRoute, carried: Carried, client: MessageClient): Promise<void> {
  const { res, bot, stream } = client;
  res.locals.stream = stream;
  beginStream(res, carried.answered.head);
  const identity = { requestId: res.locals.requestId, bot };
  const { heartbeats, observer } = route;
  const onHeartbeat = observer.heartbeatSent;
  const sink = responseSink({ res, identity, stream, log: res.locals, heartbeats, onHeartbeat });
  return carry(route, carried, sink);
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
    const way = await sendOrJoin(route, client);
    return 'task' in way ? way : { ...way, head: await headOf(way.run, way.seat, client) };
  } catch (failure) {
    const error = await firstFailure(client.place, failure);
    const isStopped = error instanceof Problem && error.code === 'stopped';
    if (!isStopped && (route.failures === 'status' || !client.progress.hasLeft)) throw error;
    answerInStream({ error, res: client.res, bot: client.bot, logger: route.logger });
    return undefined;
  }
}

/** Reads the message, and joins its run or sends it. A function of its own, so that the body is freed after it. */
async function sendOrJoin(route: MessageRoute, client: MessageClient): Promise<Carried | Seated> {
  const message = await readMessage(route, client);
  const seated =
    message.name && (await enterRun(route, client, { message, sending: { sendMessage, carry } }));
  if (seated) return seated;
  const task = ownTask(client, askEarly(route, client));
  return { task, answered: await sendMessage(route, task, message) };
}

async function readMessage(route: MessageRoute, client: MessageClient): Promise<ReadMessage> {
  const { req, userId, bot, place } = client;
  const read = readJson(req, route.body);
  const { bytes, value } = read instanceof Promise ? await read : read;
  const endpoint = botName(bot);
  const { url, headers } = req;
  const lastEventId = lastEventIdOf(headers);
  const isFree = lastEventId === undefined ? freeChannel(route, client, bytes) : undefined;
  const placed = route.conversations.ofMessage(bytes, { url, userId, bot: endpoint, isFree });
  const { body, conversation } = placed instanceof Promise ? await placed : placed;
  const checked = route.blobs.check(bytes, { bot: endpoint, userId, conversation });
  if (checked) await checked;
  const hash = nameOfMessage(userId, endpoint, bytes);
  const query = route.joining.runs && route.forwardedQuery(url);
  const about = { userId, bot: endpoint, channel: conversation?.upstream, headers, value, bytes, hash };
  const name = query === undefined ? undefined : runName({ ...about, query });
  return { body, conversation, hash, name, resets: resetsConversation(value), lastEventId, place };
}

/** Waits for a slot and sends. */
async function sendMessage(route: MessageRoute, task: MessageTask, message: ReadMessage): Promise<Answered> {
  const { userId, bot, shape, holders, url, headers, locals, stop, releases, run, early } = task;
  const { body, conversation, hash: name, lastEventId, place } = message;
  const endpoint = botName(bot);
  const { requestId } = locals;
  const isResumption = lastEventId !== undefined;
  const limits = deadlines(stop, route.times);
  releases.push(limits.clear);
  const { maxExecutionMs } = route.times;
  const deadline = messageDeadline({ starts: route.starts, name, isResumption, maxExecutionMs });
  deadline.check();
  const placed = place.keep();
  if (placed) await placed;
  const stoppedWith =
    conversation && !isResumption ? { bot: endpoint, channel: conversation.upstream } : undefined;
  const unsent = route.unsent.add(stoppedWith, stop);
  releases.push(unsent.close);
  const pacing = route.paceMessage({ endpoint, holders, signal: stop.signal, log: locals, early });
  const started = pacing.start();
  task.setHeaders(started instanceof Promise ? await started : started);
  const { keys, mask } = requestKeys(route, { bot: endpoint, requestId, conversation: () => conversation });
  const outgoing = { bot, shape, path: MESSAGE_PATH, url, headers, requestId, userId, body };
  const request = route.upstreamRequest(outgoing);
  const answer = await sendUntilTaken(route, { request, keys, pacing, unsent, mask, limits, deadline, task });
  if (message.resets) await route.forgetRuns(bot, conversation, message.name);
  const kept = route.keepMessage({ request, bot: endpoint, holders, locals });
  const keptRequest = kept?.request;
  if (keptRequest) run?.keep(() => runHold(task, { request: keptRequest(), conversation, limits }));
  return { answer, head: streamHead(answer, mask), deadline, kept, conversation };
}

/** Sends the message with the next key until the service takes it or refuses it finally. */
async function sendUntilTaken(route: MessageRoute, sending: Sending): Promise<UpstreamAnswer> {
  const { keys, pacing, unsent, mask, limits, deadline, task } = sending;
  const { progress, locals, stop, run } = task;
  const { signal } = stop;
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
  const onDelayed = () => pacing.renewSlot().then(() => run?.mayLeave());
  const mayStart = run && (() => run.isSure());
  try {
    for (;;) {
      const leaving = unsent.leave();
      // A slot may have become old during the round trip.
      if (leaving && (await leaving)) await pacing.renewSlot();
      const asked = run?.mayLeave();
      if (asked) await asked;
      const key = keys.next();
      const send = observedSend(route.send, key.fingerprint, route.observer);
      limits.start(deadline.begin());
      const request = withKey(sending.request, key);
      const attempt = { send, request, mask, signal, mayStart, onStatus, onSent, onDelayed };
      const verdict = await sendAndJudge(attempt);
      if (verdict.kind === 'stream') {
        limits.answered();
        keys.accepted();
        pacing.judged(true);
        return verdict.answer;
      }
      limits.clear();
      progress.mayHaveStarted = false;
      unsent.refused();
      run?.refused();
      const waitToSendAgain = SENT_AGAIN[verdict.kind];
      await waitToSendAgain(verdict.problem, sending);
    }
  } catch (error) {
    pacing.judged(false);
    if (error instanceof Problem && error.code === 'upstream_refused') progress.mayHaveStarted = false;
    throw progress.mayHaveStarted ? asAnswerLost(error) : error;
  }
}
