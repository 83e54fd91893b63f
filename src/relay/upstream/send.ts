import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { Problem } from '../../errors.ts';
import { answerArrival, type UpstreamAnswer } from './answer-arrival.ts';
import { type Connection, connectionsTo } from './connections.ts';

/** A `POST` to the bot service. */
export interface UpstreamRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

export interface SendOptions {
  /** Aborted, it closes the connection, whatever the request or its answer has come to. */
  readonly signal: AbortSignal;
  /**
   * Asked if the request was held up by more than `HELD_UP_MS` since it was handed over, and before its first byte
   * leaves. The request leaves as soon as this resolves.
   */
  readonly mayLeave: () => Promise<void>;
  /** Called when the first bytes of the request have been handed to the system's network, its body among them. */
  readonly onSent: () => void;
}

/** The way to the bot service. */
export interface Upstream {
  /**
   * Sends a request, once. Resolves with the answer as soon as its headers are there. Rejects with the signal's
   * reason where that aborts first, and with what `mayLeave` rejects with.
   * @throws Problem `upstream_unreachable`, or `upstream_bad_response` if what came is not HTTP; the system's or
   * the parser's error code is its `cause`
   */
  send(request: UpstreamRequest, options: SendOptions): Promise<UpstreamAnswer>;
  /** Closes the idle connections. */
  close(): void;
}

/** A request that leaves later than this after it was handed over was held up: by a new connection, or a busy process. */
const HELD_UP_MS = 5;

/** The way to the bot service at the origin of `url`. */
export function createUpstream({ origin }: Readonly<URL>): Upstream {
  const connections = connectionsTo(origin);
  return {
    async send(request, options) {
      options.signal.throwIfAborted();
      const connection = connections.take();
      /** On which socket the message was told that it may leave. */
      let allowedOn: ReturnType<Connection['socket']>;
      const isHeldUp = (ms: number) => ms > HELD_UP_MS && connection.socket() !== allowedOn;
      for (;;) {
        const answer = await exchange(connection, dispatchOf(request), { ...options, isHeldUp });
        if (!(answer instanceof HeldUp)) return answer;
        // On this one it leaves next time, however late: `onSent` tells when it left.
        allowedOn = connection.socket();
        try {
          await options.mayLeave();
          options.signal.throwIfAborted();
        } catch (error) {
          connection.release();
          throw error;
        }
      }
    },
    close: connections.close,
  };
}

/** Why a request did not leave. */
class HeldUp extends Error {}

interface ExchangeOptions extends Omit<SendOptions, 'mayLeave'> {
  /** Whether a request that leaves so many ms after it was handed over must not. */
  readonly isHeldUp: (ms: number) => boolean;
}

/** undici keeps a request's body until its answer is over. A body larger than this, in bytes, is sent as a stream instead. */
const KEPT_BODY_BYTES = 16_384;

/** A body as a stream that keeps nothing of it once it is sent: the answer may be a stream that lasts minutes. */
function streamOf(body: Buffer): Readable {
  const chunks = [body];
  return new Readable({
    read() {
      this.push(chunks.pop() ?? null);
    },
  });
}

/** What the connection is given to send. A function of its own, so that nothing else refers to the body. */
function dispatchOf({ path, headers, body }: UpstreamRequest): Dispatcher.DispatchOptions {
  const sent = body.length > KEPT_BODY_BYTES ? streamOf(body) : body;
  return { path, method: 'POST', headers, body: sent };
}

/** Sends what `outgoing` says over `connection`; resolves with `HeldUp` if it was held up, and then no byte of it has left. */
function exchange(
  connection: Connection,
  outgoing: Dispatcher.DispatchOptions,
  { signal, onSent, isHeldUp }: ExchangeOptions,
): Promise<UpstreamAnswer | HeldUp> {
  return new Promise((resolve, reject) => {
    const handedOverAt = performance.now();
    const abort = () => {
      reject(signal.reason);
      connection.close();
    };
    const fail = (error: Error) => {
      signal.removeEventListener('abort', abort);
      if (error instanceof HeldUp) return resolve(error);
      connection.close();
      reject(failureOf(error, arrival.isStarted()));
    };
    signal.addEventListener('abort', abort, { once: true });
    const arrival = answerArrival(connection);
    connection.dispatch(outgoing, {
      onRequestStart() {
        if (isHeldUp(performance.now() - handedOverAt)) throw new HeldUp();
      },
      onBodySent: onSent,
      onResponseStarted: arrival.start,
      onResponseStart(controller, status, fields) {
        // An interim answer says nothing of the message (RFC 9110 §15.2).
        if (status < 200) return;
        signal.removeEventListener('abort', abort);
        resolve(arrival.begin(controller, status, fields));
      },
      onResponseData: (_controller, chunk) => arrival.data(chunk),
      onResponseEnd: () => arrival.end(),
      onResponseError: (_controller, error) =>
        arrival.hasHead() ? arrival.broken(codeOf(error)) : fail(error),
    });
  });
}

function codeOf(error: Error): string {
  const { code = error.name } = error as NodeJS.ErrnoException;
  // The service closed the connection, which Node.js calls by this name.
  return code === 'UND_ERR_SOCKET' ? 'ECONNRESET' : code;
}

/** What becomes of a message that got no answer; `isStarted` if at least a byte of one has come. */
function failureOf(error: Error, isStarted: boolean): Problem {
  const cause = codeOf(error);
  return isStarted
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', { cause })
    : new Problem('upstream_unreachable', 'The bot service did not answer.', {
        cause,
      });
}
