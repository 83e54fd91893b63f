import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { UpstreamAnswer } from './answer-arrival.ts';
import { exchange } from './exchange.ts';
import { connectionsTo, type UpstreamConnection } from './upstream-connections.ts';

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
  /**
   * Called when the operating system has taken the first bytes of the request, including the start of its body, if any.
   */
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
      let allowedSocket: ReturnType<UpstreamConnection['socket']>;
      const isDelayed = () =>
        performance.now() - dueAt > MAX_DELAY_MS && connection.socket() !== allowedSocket;
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
