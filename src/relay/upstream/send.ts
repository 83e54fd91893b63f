import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { Problem } from '../../errors.ts';
import { answerArrival, type UpstreamAnswer } from './answer-arrival.ts';
import { type Connection, connectionsTo } from './upstream-connections.ts';

/** A request to the bot service. */
export interface UpstreamRequest {
  /** By default POST. A GET has no body. */
  readonly method?: 'GET' | undefined;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Empty for a GET. */
  readonly body: Buffer;
}

export interface SendOptions {
  /** Aborted, it closes the connection, at any time. */
  readonly signal: AbortSignal;
  /**
   * Called before the first byte is sent, if the request was delayed by more than `MAX_DELAY_MS`. The request is sent
   * as soon as this resolves.
   */
  readonly onDelayed: () => Promise<void>;
  /** Asked right before the first byte is sent. If the request may not leave yet, `onDelayed` is called. */
  readonly mayStart?: (() => boolean) | undefined;
  /** Called when the operating system has taken the first bytes of the request, including the start of its body, if any. */
  readonly onSent: () => void;
}

/** Sends requests to the bot service. */
export interface Upstream {
  /**
   * Sends a request, once. Resolves with the answer as soon as its headers have arrived. Rejects with the signal's
   * reason if that aborts first, and with the error of `onDelayed`.
   * @throws Problem `upstream_unreachable`, or `upstream_bad_response` if the answer is not HTTP; its `cause` is the
   * error code of the system or the parser, and its `maybeStarted` is true if a byte of a POST has left
   */
  send(request: UpstreamRequest, options: SendOptions): Promise<UpstreamAnswer>;
  /** Closes the idle connections. */
  close(): void;
}

/** A request that is sent later than this after `send` is delayed, in ms: by a new connection or a busy process. */
const MAX_DELAY_MS = 5;

/** Makes the sender for the bot service at the origin of `url`. */
export function createUpstream({ origin }: Readonly<URL>): Upstream {
  const connections = connectionsTo(origin);
  return {
    async send(request, options) {
      options.signal.throwIfAborted();
      let connection = connections.take();
      let dueAt = performance.now();
      /** The socket for which `onDelayed` has resolved. */
      let allowedSocket: ReturnType<Connection['socket']>;
      const isDelayed = () =>
        (performance.now() - dueAt > MAX_DELAY_MS && connection.socket() !== allowedSocket) ||
        options.mayStart?.() === false;
      for (;;) {
        const { signal, onSent } = options;
        const answer = await exchange(connection, dispatchOf(request), { signal, onSent, isDelayed });
        if (answer === 'stale') {
          connection.close();
          options.signal.throwIfAborted();
          connection = connections.take();
          continue;
        }
        if (answer !== 'delayed') return answer;
        // Next time it is sent on this socket even if it is delayed again: `onSent` tells when it was sent.
        allowedSocket = connection.socket();
        try {
          await options.onDelayed();
          options.signal.throwIfAborted();
        } catch (error) {
          connection.release();
          throw error;
        }
        dueAt = performance.now();
      }
    },
    close: connections.close,
  };
}

/** Why a request was not sent: it was delayed, or its kept connection is too old or has broken. */
type NotSentReason = 'delayed' | 'stale';

/** Thrown instead of sending a request. */
class NotSent extends Error {
  readonly why: NotSentReason;

  constructor(why: NotSentReason) {
    super(why);
    this.why = why;
  }
}

/** Made once, since the stack of an error takes longer to collect than a message to send. */
const DELAYED = new NotSent('delayed');
const STALE = new NotSent('stale');

interface ExchangeOptions extends Omit<SendOptions, 'onDelayed' | 'mayStart'> {
  readonly isDelayed: () => boolean;
}

/** A larger body, in bytes, is sent as a stream, since undici keeps a body in memory until its answer has ended. */
const KEPT_BODY_BYTES = 16_384;

/** A body as a stream that does not keep the body after it is sent: the answer may last for minutes. */
function streamOf(body: Buffer): Readable {
  const chunks = [body];
  return new Readable({
    read() {
      this.push(chunks.pop() ?? null);
    },
  });
}

/** What the connection has to send. A separate function, so that no other closure keeps the body in memory. */
function dispatchOf({ method, path, headers, body }: UpstreamRequest): Dispatcher.DispatchOptions {
  if (method === 'GET') return { path, method, headers };
  const sent = body.length > KEPT_BODY_BYTES ? streamOf(body) : body;
  return { path, method: 'POST', headers, body: sent };
}

/** A request until its answer begins. */
interface Exchange extends ExchangeOptions {
  readonly connection: Connection;
  readonly method: string;
  readonly resolve: (outcome: UpstreamAnswer | NotSentReason) => void;
  readonly reject: (reason: unknown) => void;
  readonly abort: () => void;
  /** Whether its first bytes were sent. */
  hasLeft: boolean;
}

/** Sends `outgoing` over `connection`; resolves with the reason if no byte of it was sent. */
function exchange(
  connection: Connection,
  outgoing: Dispatcher.DispatchOptions,
  options: ExchangeOptions,
): Promise<UpstreamAnswer | NotSentReason> {
  return new Promise((resolve, reject) => {
    const { signal } = options;
    const abort = () => {
      reject(signal.reason);
      connection.close();
    };
    signal.addEventListener('abort', abort, { once: true });
    const { method } = outgoing;
    const begun = { ...options, connection, method, resolve, reject, abort, hasLeft: false };
    connection.dispatch(outgoing, handlerOf(begun));
  });
}

function handlerOf(begun: Exchange): Dispatcher.DispatchHandler {
  const arrival = answerArrival(begun.connection);
  // Forgotten when the answer begins, which may last for minutes.
  let waiting: Exchange | undefined = begun;
  const left = () => {
    if (!waiting || waiting.hasLeft) return;
    waiting.onSent();
    waiting.hasLeft = true;
  };
  return {
    onRequestStart() {
      // Only here it is certain how long the connection was idle: a busy process delays timers and requests.
      if (waiting?.connection.isStale()) throw STALE;
      if (waiting?.isDelayed()) throw DELAYED;
    },
    onBodySent: left,
    onRequestSent: left,
    onResponseStarted: arrival.start,
    onResponseStart(controller, status, fields) {
      // Ignore an interim answer (RFC 9110 §15.2).
      if (status < 200 || !waiting) return;
      const { signal, abort, resolve, hasLeft } = waiting;
      signal.removeEventListener('abort', abort);
      resolve(arrival.begin(controller, status, fields));
      // An answer may come before the first byte of the request leaves.
      if (hasLeft) waiting = undefined;
    },
    onResponseData: (controller, chunk) => arrival.data(controller, chunk),
    onResponseEnd: () => arrival.end(),
    onResponseError(_controller, error) {
      if (arrival.hasHead()) arrival.broken(codeOf(error));
      else if (waiting) fail(waiting, error, arrival.isStarted());
    },
  };
}

/** There is no answer. `isStarted`: but at least one byte of it has arrived. */
function fail(
  { connection, method, signal, abort, hasLeft, resolve, reject }: Exchange,
  error: Error,
  isStarted: boolean,
): void {
  signal.removeEventListener('abort', abort);
  // A reset of an idle connection also fails the request that was about to take it.
  const why = error instanceof NotSent ? error.why : !hasLeft && connection.isKept() && 'stale';
  if (why) {
    resolve(why);
    return;
  }
  connection.close();
  // A GET starts nothing (RFC 9110 §9.2.1).
  reject(failureOf(error, { isStarted, maybeRuns: hasLeft && method === 'POST' }));
}

function codeOf(error: Error): string {
  const { code = error.name } = error as NodeJS.ErrnoException;
  // The service closed the connection: use the name that Node.js has for it.
  return code === 'UND_ERR_SOCKET' ? 'ECONNRESET' : code;
}

interface Progress {
  /** At least one byte was handed to the system of a request that runs something. */
  readonly maybeRuns: boolean;
  /** At least one byte of an answer has arrived. */
  readonly isStarted: boolean;
}

/** The problem for a request without an answer. */
function failureOf(error: Error, { maybeRuns, isStarted }: Progress): Problem {
  const options = { cause: codeOf(error), ...(maybeRuns && { maybeStarted: true as const }) };
  return isStarted
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', options)
    : new Problem('upstream_unreachable', 'The bot service did not answer.', options);
}
