import type { IncomingHttpHeaders } from 'node:http';
import type { Request, Response } from 'express';
import type { LiveSession } from '../authenticate/sessions/session.ts';
import type { SessionWatch } from '../authenticate/sessions/session-watch.ts';
import type { Sessions } from '../authenticate/sessions/sessions.ts';
import type { PathParameters } from '../bots/allow-list.ts';
import { type Bot, botName } from '../bots/bot.ts';
import type { Problem } from '../errors.ts';
import { clientAddress } from '../http/client-address.ts';
import { abortWhenLeft } from '../http/client-left.ts';
import type { CarriedStream } from '../http/locals.ts';
import type { BodyOptions } from '../http/read-body.ts';
import { readJson } from '../http/read-json.ts';
import type { Logger } from '../logger.ts';
import type { LimitByAddress } from '../pace/client-limits.ts';
import type { Holders } from '../pace/holders.ts';
import type { PacedMessage, Pacing } from '../pace/pacing.ts';
import type { TakePlace } from '../pace/places.ts';
import type { RequestLimit } from '../pace/request-limits.ts';
import { asAnswerLost } from '../relay/message/answer-lost.ts';
import { beginStream } from '../relay/message/begin-stream.ts';
import { carryStream } from '../relay/message/carry-stream.ts';
import { type Deadlines, deadlines, type TimeLimits } from '../relay/message/deadlines.ts';
import type { Heartbeats } from '../relay/message/heartbeats.ts';
import type { Refusal } from '../relay/message/judge-response.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import { sendAndJudge } from '../relay/message/send-and-judge.ts';
import type { UpstreamAnswer } from '../relay/upstream/answer-arrival.ts';
import type { KeyRings } from '../relay/upstream/key-rings.ts';
import { messageKeys } from '../relay/upstream/message-keys.ts';
import { observedSend } from '../relay/upstream/observed-send.ts';
import type { RelayObserver } from '../relay/upstream/relay-observer.ts';
import type { Upstream, UpstreamRequest } from '../relay/upstream/send.ts';
import { maskKeys, type OutgoingMessage, withKey } from '../relay/upstream/upstream-request.ts';
import type { Steps } from './route.ts';

/** The path of a message, below the base path. */
export const MESSAGE_PATH = '/generic/ns/:namespace/bot-provider/:botProviderName/message/sse';

/** What the steps of a message are made of; each is built once. */
export interface MessageRoute {
  readonly limitByAddress: LimitByAddress;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Pick<Sessions, 'require' | 'use'>;
  readonly open: OpenMessages;
  readonly limitBySession: RequestLimit;
  readonly watch: SessionWatch;
  readonly allowedBot: (parameters: PathParameters) => Bot;
  readonly holdersOf: (userId: string, address: string) => Holders;
  readonly takePlace: TakePlace;
  readonly body: BodyOptions;
  readonly paceMessage: (message: PacedMessage) => Pacing;
  readonly upstreamRequest: (message: OutgoingMessage) => UpstreamRequest;
  readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>;
  readonly send: Upstream['send'];
  readonly times: TimeLimits;
  readonly heartbeats: Heartbeats;
  readonly observer: RelayObserver;
  readonly logger: Logger;
}

/** `POST …/message/sse`: the way of a message, from top to bottom. */
export function messageRoute(route: MessageRoute): Steps {
  return async function message(req, res) {
    await route.limitByAddress(req, res);
    route.checkOrigin(req.headers);
    const session = await route.sessions.require(req);
    res.locals.userId = session.user.id;
    const stop = abortWhenLeft(res);
    const stream: CarriedStream = { bytes: 0 };
    const releases = [route.open.add(stop, session.key)];
    try {
      stop.signal.throwIfAborted();
      await route.limitBySession(req, res, session.key);
      const used = await route.sessions.use(session);
      releases.push(route.watch.follow({ session: used, bytes: () => stream.bytes }));
      const bot = route.allowedBot(req.params);
      res.locals.bot = botName(bot);
      const holders = route.holdersOf(session.user.id, clientAddress(req));
      releases.push(await route.takePlace(holders));
      const limits = deadlines(stop, route.times);
      releases.push(limits.clear);
      const accepted = { req, res, session, bot, holders, stop, limits };
      const { answer, mask } = await sendMessage(route, accepted);
      res.locals.stream = stream;
      beginStream(res, answer, mask);
      releases.push(route.observer.streamStarted());
      await carryStream({
        upstream: answer,
        res,
        signal: stop.signal,
        heartbeats: route.heartbeats,
        onHeartbeat: route.observer.heartbeatSent,
        of: { requestId: res.locals.requestId, bot },
        stream,
        log: res.locals,
      });
    } finally {
      for (const release of releases.reverse()) release();
    }
  };
}

/** A message that everything in front of the budget has let pass. */
interface Accepted {
  readonly req: Request;
  readonly res: Response;
  readonly session: LiveSession;
  readonly bot: Bot;
  readonly holders: Holders;
  readonly stop: AbortController;
  readonly limits: Deadlines;
}

/** An answer that is a stream, and what hides the keys of this message in it. */
interface Answered {
  readonly answer: UpstreamAnswer;
  readonly mask: (text: string) => string;
}

/** Reads the body, waits for a slot and sends. A function of its own: the body is forgotten when the stream begins. */
async function sendMessage(route: MessageRoute, accepted: Accepted): Promise<Answered> {
  const { req, res, session, bot, holders, stop, limits } = accepted;
  const { requestId } = res.locals;
  const { bytes } = await readJson(req, route.body);
  const endpoint = botName(bot);
  const pacing = route.paceMessage({ endpoint, holders, signal: stop.signal, log: res.locals });
  for (const [name, value] of Object.entries(await pacing.start())) res.setHeader(name, value);
  const ring = route.keyRings.ringOf(endpoint);
  // The message keeps these until it is answered, whatever becomes of the configuration.
  const mask = maskKeys([...ring.keys, ...route.keyRings.keys()]);
  const { url, headers } = req;
  const request = route.upstreamRequest({
    bot,
    url,
    headers,
    requestId,
    userId: session.user.id,
    body: bytes,
  });
  const keys = messageKeys(ring, route.logger, requestId);
  const onStatus = (status: number | undefined) => {
    res.locals.upstreamStatus = status;
  };
  const sending = { request, keys, pacing, mask, limits, onStatus, signal: stop.signal };
  return { answer: await sendUntilTaken(route, sending), mask };
}

interface Sending {
  readonly request: UpstreamRequest;
  readonly keys: ReturnType<typeof messageKeys>;
  readonly pacing: Pacing;
  readonly mask: (text: string) => string;
  readonly limits: Deadlines;
  /** Told the status of each answer, and that there is none yet. */
  readonly onStatus: (status: number | undefined) => void;
  readonly signal: AbortSignal;
}

/** What a message waits for before it is sent once more. */
type WaitToSendAgain = (problem: Problem, sending: Sending) => Promise<void>;

/** The refusals after which a message may be sent again: the service has certainly not begun to run it. */
const SENT_AGAIN: Readonly<Record<Refusal['kind'], WaitToSendAgain>> = {
  async key_refused(problem, { keys, pacing }) {
    if (!keys.refused()) throw problem;
    await pacing.oneMore();
  },
  asked_to_wait: (problem, { pacing }) => pacing.waitAgain(problem),
};

/** The one loop around the one place where a message is sent: slot, key, send, judge. */
async function sendUntilTaken(route: MessageRoute, sending: Sending): Promise<UpstreamAnswer> {
  const { request, keys, pacing, mask, limits, onStatus, signal } = sending;
  /** Whether the request has been handed to the network, and the service has not refused it since. */
  let maybeStarted = false;
  const onSent = () => {
    maybeStarted = true;
    pacing.sent();
  };
  try {
    for (;;) {
      const key = keys.next();
      const send = observedSend(route.send, key.fingerprint, route.observer);
      limits.start();
      const verdict = await sendAndJudge({
        ...{ send, request: withKey(request, key), mask, onStatus, signal, onSent },
        mayLeave: pacing.mayLeave,
      });
      if (verdict.kind === 'stream') {
        limits.answered();
        keys.accepted();
        pacing.judged(true);
        return verdict.answer;
      }
      limits.clear();
      maybeStarted = false;
      const waitToSendAgain = SENT_AGAIN[verdict.kind];
      await waitToSendAgain(verdict.problem, sending);
    }
  } catch (error) {
    pacing.judged(false);
    throw maybeStarted ? asAnswerLost(error) : error;
  }
}
