import type { IncomingHttpHeaders } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { type Bot, botName, type PathShape } from '../bots/bot.ts';
import { asProblem, isFault, Problem } from '../errors.ts';
import type { Conversation } from '../guard/conversations.ts';
import { levelOf, type RequestLocals } from '../http/locals.ts';
import type { Holders } from '../pace/holders.ts';
import type { Pacing } from '../pace/pacing.ts';
import { streamHead } from '../relay/message/begin-stream.ts';
import { carryTo } from '../relay/message/carry-stream.ts';
import { type Deadlines, deadlines } from '../relay/message/deadlines.ts';
import { judgeResponse } from '../relay/message/judge-response.ts';
import { sendAndJudge } from '../relay/message/send-and-judge.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import type { MessageKeys } from '../relay/upstream/message-keys.ts';
import { observedSend } from '../relay/upstream/relay-observer.ts';
import type { UpstreamRequest } from '../relay/upstream/send.ts';
import { asAnswerLost } from '../relay/upstream/upstream-problems.ts';
import { withKey } from '../relay/upstream/upstream-request.ts';
import { MESSAGE_PATH } from '../relay/upstream/upstream-target.ts';
import type { Run } from '../runs/run.ts';
import type { RunName } from '../runs/run-name.ts';
import type { BotServices } from './bot-services.ts';
import type { KeptMessage } from './message-healing.ts';
import { lastEventIdOf } from './read-run.ts';
import { requestKeys } from './request-keys.ts';
import { type Releases, releaseAll } from './route.ts';

/** Whose message it is, and to which bot. */
export interface MessageOwner {
  readonly userId: string;
  readonly bot: Bot;
  readonly shape: PathShape;
  readonly holders: Holders;
}

/** A message that was read. */
export interface ReadMessage {
  /** With the upstream id of the conversation. */
  readonly body: Buffer;
  readonly conversation: Conversation | undefined;
  /** Undefined if it can't be joined. */
  readonly name: RunName | undefined;
  /** Whether it begins its conversation anew. */
  readonly resets: boolean;
  readonly lastEventId: string | undefined;
}

/** A run that outlives the request that has begun it, and what of that it needs. */
export interface NewRun {
  readonly run: Run;
  readonly about: MessageOwner & {
    /** The target and the headers of the request. */
    readonly url: string;
    readonly headers: IncomingHttpHeaders;
    readonly locals: RequestLocals;
  };
  /** Called when its body is not needed any more. */
  readonly freeBody: () => void;
}

/** A new run, and what it has taken and gives back when it is over. */
interface RunWork extends NewRun {
  readonly releases: Releases;
}

/** An answer that is a stream. */
interface MessageAnswer {
  readonly answer: UpstreamAnswer;
  readonly head: ReadonlyMap<string, string>;
  readonly conversation: Conversation | undefined;
  /** What is kept to resume the stream if it breaks. */
  readonly kept: KeptMessage | undefined;
}

/** Sends the message of a new run, and carries its answer until the end, whether it is read or not. */
export function beginRun(services: BotServices, begun: NewRun, message: ReadMessage): void {
  const work = { ...begun, releases: [] };
  void conduct(services, work, send(services, work, message));
}

/** A function of its own, so that the body is freed while the stream goes on. */
async function conduct(services: BotServices, work: RunWork, sent: Promise<MessageAnswer>): Promise<void> {
  const { run, releases } = work;
  let failure: unknown;
  try {
    const answered = await sent.finally(work.freeBody);
    run.beginStream(answered.head);
    // The readers that wait attach first: they alone get bytes for which the log has no memory.
    await setImmediate();
    await carry(services, work, answered);
  } catch (error) {
    failure = error;
  }
  releaseAll(releases);
  // Another instance has the name, and this run was not sent.
  if (run.isElsewhere) return;
  if (run.isInGrace) logFailure(services, work, failure);
  run.end(failure);
}

/** Takes a place for its stream, waits for a slot, and sends until the service takes the message. */
async function send(services: BotServices, work: RunWork, message: ReadMessage): Promise<MessageAnswer> {
  const { run, about, releases } = work;
  const { userId, bot, shape, holders, url, headers, locals } = about;
  const { body, conversation } = message;
  const { requestId } = locals;
  const endpoint = botName(bot);
  const { signal } = run.stop;
  const limits = deadlines(run.stop, services.times);
  releases.push(limits.clear);
  releases.push(await services.takePlace(holders));
  signal.throwIfAborted();
  const pacing = services.paceMessage({ endpoint, holders, signal, log: locals });
  for (const [name, value] of Object.entries(await pacing.start())) run.headers.set(name, value);
  const { keys, mask } = requestKeys(services, {
    bot: endpoint,
    requestId,
    conversation: () => conversation,
  });
  const outgoing = { bot, shape, path: MESSAGE_PATH, url, headers, requestId, userId, body };
  const request = services.upstreamRequest(outgoing);
  const answer = await sendUntilTaken(services, { ...work, request, keys, pacing, mask, limits });
  if (message.resets) await services.forgetRuns(bot, conversation);
  const kept = services.keepMessage({ request, bot: endpoint, holders, locals });
  return { answer, head: streamHead(answer, mask), kept, conversation };
}

/** A message that has its slot, and what sends it. */
interface MessageSending extends RunWork {
  readonly request: UpstreamRequest;
  readonly keys: MessageKeys;
  readonly pacing: Pacing;
  readonly mask: (text: string) => string;
  readonly limits: Deadlines;
}

/** Sends the message with the next key until the service takes it or refuses it finally. */
async function sendUntilTaken(services: BotServices, sending: MessageSending): Promise<UpstreamAnswer> {
  const { run, about, request, keys, pacing, mask, limits } = sending;
  const { signal } = run.stop;
  const onStatus = (status: number | undefined) => {
    about.locals.upstreamStatus = status;
    run.upstreamStatus = status;
  };
  const onSent = () => {
    run.sent();
    pacing.sent();
  };
  try {
    for (;;) {
      await confirmAndRenew(services, sending);
      const key = keys.next();
      const send = observedSend(services.send, key.fingerprint, services.observer);
      limits.start();
      const attempt = { send, request: withKey(request, key), mask, signal, onStatus, onSent };
      const verdict = await sendAndJudge(judgeResponse, {
        ...attempt,
        onDelayed: () => confirmAndRenew(services, sending),
      });
      if (verdict.kind === 'stream') {
        limits.answered();
        keys.accepted();
        return verdict.answer;
      }
      limits.clear();
      run.refused();
      await waitToSendAgain(verdict, sending);
    }
  } catch (error) {
    if (error instanceof Problem && error.code === 'upstream_refused') run.refused();
    throw run.mayHaveRun ? asAnswerLost(error) : error;
  }
}

/** A message that has waited for longer than this since it was confirmed is confirmed again, in ms. */
const CONFIRMED_MS = 1_000;

/**
 * The last step before each sending: confirms the run, and renews the slot, which may have expired meanwhile. If the last
 * reader here has left, this first waits until it is known whether another instance reads the run.
 */
async function confirmAndRenew({ runs }: BotServices, { run, pacing }: MessageSending): Promise<void> {
  let known: Promise<void>;
  let askedAt: number;
  do {
    known = run.readersKnown;
    await known;
    askedAt = performance.now();
    await runs.confirm(run);
    await pacing.renewSlot();
  } while (run.readersKnown !== known || performance.now() - askedAt > CONFIRMED_MS);
}

/** Waits until a message that the service has refused may be sent again. @throws Problem if it is not sent again */
async function waitToSendAgain(
  { kind, problem }: { readonly kind: 'key_refused' | 'asked_to_wait'; readonly problem: Problem },
  { keys, pacing }: MessageSending,
): Promise<void> {
  if (kind === 'asked_to_wait') return pacing.waitAfterRefusal(problem);
  const failure = keys.refused(problem);
  if (failure) throw failure;
  await pacing.takeExtraSlot();
}

/** Carries the stream into the run until it ends. */
async function carry(
  services: BotServices,
  { run, about, releases }: RunWork,
  answered: MessageAnswer,
): Promise<void> {
  const { userId, bot, shape, holders, locals, headers } = about;
  const { answer, kept, conversation } = answered;
  const { requestId } = locals;
  if (kept) releases.push(kept.release);
  releases.push(services.observer.streamStarted());
  const { openRun } = await carryTo(run.stream, {
    answer,
    signal: run.stop.signal,
    log: locals,
    holding: services.holding,
    endEvents: services.endEvents,
    lastEventId: lastEventIdOf(headers),
    channel: conversation,
    healer: kept?.healer,
    onIncompleteEnd: services.observer.incompleteEnd,
    onFault: (err) => services.logger.error({ requestId, err }, 'fault'),
  });
  if (openRun === undefined || !conversation) return;
  const ids = { channel: conversation.upstream, runId: openRun, userId };
  services.suspendLeftRun({ shape, bot, holders, requestId, ...ids });
}

/** Logs the failure of a run without a reader: no request is left whose log line could show it. */
function logFailure({ logger }: BotServices, { run, about }: RunWork, failure: unknown): void {
  const { ended } = run.stream;
  if (failure === undefined && !ended?.problem) return;
  const problem = ended?.problem ?? asProblem(failure);
  const { requestId, upstreamStatus, resumptions } = about.locals;
  if (failure !== undefined && isFault(problem)) logger.error({ requestId, err: problem.cause }, 'fault');
  const { notResumed } = problem.options;
  const outcome = problem.code;
  const cause = typeof problem.cause === 'string' ? problem.cause : undefined;
  const level = problem.options.level ?? levelOf({ status: problem.status, outcome });
  const { userId, bot } = about;
  logger[level](
    { requestId, outcome, cause, upstreamStatus, resumptions, notResumed, userId, bot: botName(bot) },
    'run ended without a client',
  );
}
