import type { RequestHandler, Response } from 'express';
import { Problem } from '../../errors.ts';
import type { Bot } from '../../http/locals.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { KeyRing } from '../upstream/key-ring.ts';
import type { KeyRings } from '../upstream/key-rings.ts';
import { observedSend } from '../upstream/observed-send.ts';
import type { Upstream, UpstreamRequest } from '../upstream/send.ts';
import {
  maskKeys,
  type UpstreamRequestOptions,
  upstreamRequests,
  withKey,
} from '../upstream/upstream-request.ts';
import { onceSent, type Progress } from './answer-lost.ts';
import { carryStream } from './carry-stream.ts';
import { createHeartbeats } from './heartbeats.ts';
import { judgeResponse } from './judge-response.ts';
import { CLIENT_CLOSED } from './open-messages.ts';
import { type RelayObserver, UNOBSERVED } from './relay-observer.ts';

export interface RelayOptions extends UpstreamRequestOptions {
  readonly send: Upstream['send'];
  /** The keys, by bot. */
  readonly keyRings: Pick<KeyRings, 'ringOf' | 'keys'>;
  /** To the response's headers, in ms. */
  readonly responseTimeoutMs: number;
  /** For the whole execution, from the moment the request goes upstream, in ms. */
  readonly maxExecutionMs: number;
  /** How long a stream may be silent before a heartbeat, in ms; 0 for none. */
  readonly heartbeatMs: number;
  /** Resolves when a message that the service has refused with 429 may be sent again; rejects with `refusal` if it may not. */
  readonly waitAgain: (res: Response, refusal: Problem) => Promise<void>;
  /** Asked for every request when its connection to the service is there: resolves when it may leave, or rejects. */
  readonly mayLeave: (res: Response) => Promise<void>;
  /** Told once of every message whether the service has accepted it; not of one that it refused with 429. */
  readonly noteJudged: (res: Response, accepted: boolean) => void;
  /** Told of every request that has left for the service, with its body. */
  readonly noteSent: (res: Response) => void;
  /** Resolves when a message whose key was refused may be sent with another one; rejects if it may not in time. */
  readonly waitForNextKey: (res: Response) => Promise<void>;
  readonly logger: Logger;
  readonly observer?: RelayObserver | undefined;
}

/** Headers that every stream goes down with: nobody between here and the page may hold, change or keep it. */
const STREAM_HEADERS = new Map([
  ['Cache-Control', 'no-cache, no-transform'],
  ['X-Accel-Buffering', 'no'],
]);

/**
 * Sends the message that passed the guard to the bot service and carries the streamed answer back.
 * @throws Problem of the upstream kinds, as long as no byte of an answer went down
 */
export function relayMessage(options: RelayOptions): RequestHandler {
  const upstreamRequest = upstreamRequests(options);
  const heartbeats = createHeartbeats(options.heartbeatMs);
  const { observer = UNOBSERVED } = options;
  return async function relayMessage(req, res) {
    const stop = res.locals.stop as AbortController;
    try {
      const { response, deadline } = await beginAnswer(upstreamRequest(req, res), res, options);
      try {
        observer.streamStarted(res);
        await carryStream({
          upstream: response,
          res,
          signal: stop.signal,
          heartbeats,
          onHeartbeat: observer.heartbeatSent,
        });
      } finally {
        clearTimeout(deadline);
      }
    } catch (error) {
      if (error !== CLIENT_CLOSED) throw error;
    }
  };
}

/**
 * Sends the message, and the headers of its answer down. A function of its own: what it holds is over when the stream
 * begins.
 */
async function beginAnswer(request: UpstreamRequest, res: Response, options: RelayOptions): Promise<Run> {
  const { namespace, botProviderName } = res.locals.bot as Bot;
  const ring = options.keyRings.ringOf(`${namespace}/${botProviderName}`);
  // The message keeps these until it is answered, whatever becomes of the configuration.
  const mask = maskKeys([...ring.keys, ...options.keyRings.keys()]);
  const progress = { sent: false };
  const run = await runWhenAllowed({ request, ring, mask, progress }, res, options).catch((error) => {
    throw progress.sent ? onceSent(error) : error;
  });
  try {
    startStream(res, run.response, mask);
  } catch (error) {
    clearTimeout(run.deadline);
    throw error;
  }
  delete res.locals.body;
  return run;
}

const TOO_LONG = new Problem('deadline_exceeded', 'The answer took longer than the bot service may take.');
const NO_ANSWER = new Problem('upstream_timeout', 'The bot service did not begin to answer in time.');
const NO_KEY = 'The bot service did not accept the relay; tell its operator.';

/** Statuses by which the service says that it has not taken an attempt: its key is refused, or it has to wait. */
const NOT_TAKEN = new Set([401, 403, 429]);

/** A message on its way: what goes upstream, with which keys, and how to hide them in what comes back. */
interface Message {
  readonly request: UpstreamRequest;
  readonly ring: KeyRing;
  readonly mask: (text: string) => string;
  readonly progress: Progress;
}

/** A message that the service has begun to answer; `deadline` ends it. */
interface Run {
  readonly response: UpstreamAnswer;
  readonly deadline: NodeJS.Timeout;
}

/**
 * Sends the message, and sends it again when the service has asked to wait: what it refused did not run. A key that
 * this message has seen refused is not tried again, so that it comes to an end whatever the service answers.
 */
async function runWhenAllowed(message: Message, res: Response, options: RelayOptions): Promise<Run> {
  const untried = [...message.ring.order()];
  for (;;) {
    try {
      const run = await runWithKeys({ ...message, untried }, res, options);
      options.noteJudged(res, true);
      return run;
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== 'upstream_rate_limited') {
        options.noteJudged(res, false);
        throw error;
      }
      await options.waitAgain(res, error);
    }
  }
}

/**
 * Sends the message with one key after the other while the service refuses them: what it refused did not run. Takes
 * refused keys out of `untried`.
 */
async function runWithKeys(
  message: Message & { readonly untried: Secret[] },
  res: Response,
  options: RelayOptions,
): Promise<Run> {
  const { ring, request, untried } = message;
  const { requestId } = res.locals;
  for (let key = untried[0]; key; key = untried[0]) {
    const send = observedSend(options.send, key.fingerprint, options.observer ?? UNOBSERVED);
    const run = await startRun({ ...message, request: withKey(request, key) }, res, { ...options, send });
    const about = { keyRing: ring.name, keyFingerprint: key.fingerprint };
    if (run) {
      if (ring.worked(key)) options.logger.info(about, 'upstream key accepted');
      return run;
    }
    ring.refused(key);
    options.logger.warn({ requestId, ...about }, 'upstream key rejected');
    untried.shift();
    if (untried.length > 0) await options.waitForNextKey(res);
  }
  throw new Problem('upstream_key_rejected', NO_KEY);
}

/** `undefined` if the service has refused the key. */
async function startRun(message: Message, res: Response, options: RelayOptions): Promise<Run | undefined> {
  const stop = res.locals.stop as AbortController;
  const stopAfter = (ms: number, problem: Problem) => setTimeout(() => stop.abort(problem), ms);
  const deadline = stopAfter(options.maxExecutionMs, TOO_LONG);
  const responseTimeout = stopAfter(options.responseTimeoutMs, NO_ANSWER);
  let response: UpstreamAnswer | undefined;
  try {
    response = await streamFor(message, res, options);
    return response && { response, deadline };
  } finally {
    if (!response) clearTimeout(deadline);
    clearTimeout(responseTimeout);
  }
}

async function streamFor(
  { request, mask, progress }: Message,
  res: Response,
  { send, mayLeave, noteSent }: RelayOptions,
) {
  const { locals } = res;
  const { signal } = locals.stop as AbortController;
  locals.upstreamStatus = undefined;
  const response = await send(request, {
    signal,
    mayLeave: () => mayLeave(res),
    onSent() {
      progress.sent = true;
      noteSent(res);
    },
  });
  locals.upstreamStatus = response.status;
  if (NOT_TAKEN.has(response.status)) progress.sent = false;
  const closeOnAbort = () => response.close();
  signal.addEventListener('abort', closeOnAbort, { once: true });
  try {
    return (await judgeResponse(response, mask)) === 'stream' ? response : undefined;
  } finally {
    signal.removeEventListener('abort', closeOnAbort);
    // A response that was destroyed on abort reads as a refusal without a body; the abort is the reason.
    signal.throwIfAborted();
  }
}

/**
 * Sends the headers at once: the client knows that its message runs, long before the first byte of the answer. At once
 * is at the end of this turn of the event loop: what has come with the headers of the service leaves with these.
 */
function startStream(res: Response, { headers }: UpstreamAnswer, mask: Message['mask']): void {
  const harmless = (value: unknown) => typeof value === 'string' && mask(value) === value;
  res.statusCode = 200;
  res.setHeaders(STREAM_HEADERS);
  const type = headers['content-type'];
  res.setHeader('Content-Type', harmless(type) ? (type as string) : 'text/event-stream');
  const trace = headers['x-trace-id'];
  if (harmless(trace)) res.setHeader('X-Trace-Id', trace as string);
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}
