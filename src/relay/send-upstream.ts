import { EventEmitter } from 'node:events';
import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { createProxyMiddleware, type Plugin } from 'http-proxy-middleware';
import { Problem } from '../errors.ts';
import { upstreamAgent } from './upstream-agent.ts';
import type { UpstreamRequest } from './upstream-request.ts';

/**
 * Sends a request to the bot service. Resolves with the response as soon as its headers are there; its body
 * is still unread. Aborting `signal` before that closes the connection and rejects with the
 * signal's reason.
 * @throws Problem `upstream_unreachable`, or `upstream_bad_response` if what came is not HTTP; the system's or
 * parser's error code is its `cause`. Whatever `mayLeave` rejects with
 */
export type SendUpstream = (request: UpstreamRequest, options: SendOptions) => Promise<IncomingMessage>;

export interface SendOptions {
  readonly signal: AbortSignal;
  /**
   * Asked when the connection is there, before the first byte of the request leaves on it: twice if the first was
   * in vain. The request leaves as soon as this resolves.
   */
  readonly mayLeave: () => Promise<void>;
  /** Called each time the whole request has been handed to the system's network. */
  readonly onSent: () => void;
}

/**
 * A kept connection that the service has closed already breaks within a round trip. What breaks later than
 * this, in ms, may have begun to run, and is not sent again.
 */
const STALE_WITHIN_MS = 1_000;

/**
 * The way to the bot service at `origin`, over http-proxy-middleware. If a kept connection turns out to be
 * closed before a byte of the response came, the request is sent once more over a new connection.
 */
export function createUpstream(origin: Readonly<URL>): SendUpstream {
  const kept = proxyOver(origin, upstreamAgent(origin.protocol, { keepAlive: true }));
  const fresh = proxyOver(origin, upstreamAgent(origin.protocol, { keepAlive: false }));
  return async function sendUpstream(request, options) {
    const { signal } = options;
    const first = new Attempt(options);
    try {
      return await first.send(kept, request);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof Problem || !first.metStaleSocket()) throw asProblem(error);
    }
    try {
      return await new Attempt(options).send(fresh, request);
    } catch (error) {
      throw signal.aborted ? signal.reason : asProblem(error);
    }
  };
}

type Proxy = ReturnType<typeof createProxyMiddleware>;

function proxyOver({ origin }: Readonly<URL>, agent: Agent): Proxy {
  return createProxyMiddleware({
    // As a text it would be parsed again for every message.
    target: new URL(origin),
    agent,
    changeOrigin: true,
    selfHandleResponse: true,
    followRedirects: false,
    // The default plugins write error pages into answers and URLs into logs.
    ejectPlugins: true,
    plugins: [toAttempt],
  });
}

const toAttempt: Plugin = (proxy) => {
  proxy.on('proxyReq', (request, _req, res) => attemptOf(res).onSocket(request));
  proxy.on('proxyRes', (response, _req, res) => attemptOf(res).onResponse(response));
  proxy.on('error', (error, _req, res) => attemptOf(res).onError(error));
};

function attemptOf(res: unknown): Attempt {
  return res as Attempt;
}

/**
 * Stands in for the client's response in http-proxy-middleware, which would otherwise end or destroy that
 * response whenever the upstream breaks. It has what the proxy touches and nothing else: `close` aborts the
 * upstream request, and `finished` makes the proxy leave the upstream response alone.
 */
class Attempt extends EventEmitter {
  readonly headersSent = false;
  readonly finished = true;
  readonly writableFinished = false;
  readonly #options: SendOptions;
  #request: ClientRequest | undefined;
  #bytesReadBefore = 0;
  #sentAt = 0;
  #resolve: (response: IncomingMessage) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(options: SendOptions) {
    super();
    this.#options = options;
  }

  send(proxy: Proxy, request: UpstreamRequest): Promise<IncomingMessage> {
    const { signal } = this.#options;
    const abort = () => {
      this.emit('close');
      this.#reject(signal.reason);
    };
    // The client may have left, or the session ended, while the body arrived.
    if (signal.aborted) return Promise.reject(signal.reason);
    const sent = new Promise<IncomingMessage>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    signal.addEventListener('abort', abort);
    proxy(
      this.#standInRequest(request) as unknown as IncomingMessage,
      this as unknown as ServerResponse,
      (error: unknown) => this.#reject(error),
    );
    return sent.finally(() => signal.removeEventListener('abort', abort));
  }

  onSocket(request: ClientRequest): void {
    this.#request = request;
    this.#bytesReadBefore = request.socket?.bytesRead ?? 0;
    this.#sentAt = performance.now();
    // Unasked for, and without a listener Node would drop it with neither a response nor an error.
    request.once('upgrade', (response) => this.onResponse(response));
  }

  /** What http-proxy-middleware needs of a request: these headers, this path, and a body to send in one piece. */
  #standInRequest({ path, headers, body }: UpstreamRequest) {
    return {
      method: 'POST',
      url: path,
      headers,
      httpVersionMajor: 1,
      socket: { writable: true },
      on: () => {},
      pipe: (upstream: ClientRequest) => void this.#leave(upstream, body),
    };
  }

  /** Head and body leave together, and only now: a message that took long to connect may have lost its turn. */
  async #leave(request: ClientRequest, body: Buffer): Promise<void> {
    try {
      await connected(request.socket as Socket);
      await this.#options.mayLeave();
      this.#sentAt = performance.now();
      request.once('finish', this.#options.onSent);
      if (!request.destroyed) request.end(body);
    } catch (error) {
      this.#reject(error);
      request.destroy();
    }
  }

  onResponse(response: IncomingMessage): void {
    // An error between this and the moment when somebody takes the response must not end the process.
    response.on('error', ignore);
    if (this.#request) letGo(this.#request);
    this.#resolve(response);
  }

  onError(error: Error): void {
    this.#reject(error);
  }

  /** Whether a kept connection was closed before the service had answered anything on it. */
  metStaleSocket(): boolean {
    const request = this.#request;
    if (request?.reusedSocket !== true || request.socket?.bytesRead !== this.#bytesReadBefore) return false;
    return performance.now() - this.#sentAt < STALE_WITHIN_MS;
  }
}

/** What can still happen to the request of a response tells the response, too. */
function ignore(): void {}

/** The listeners of the proxy keep its whole call, body and all, which would otherwise last as long as the stream. */
function letGo(request: ClientRequest): void {
  for (const event of ['socket', 'response', 'upgrade', 'error']) request.removeAllListeners(event);
  request.on('error', ignore);
}

/** Resolves when bytes can leave on the socket; never if they cannot, which the request's own error tells. */
async function connected(socket: Socket): Promise<void> {
  if (!socket.connecting) return;
  const event = socket instanceof TLSSocket ? 'secureConnect' : 'connect';
  await new Promise<void>((resolve) => socket.once(event, () => resolve()));
}

function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const { code = '' } = error as NodeJS.ErrnoException;
  return code.startsWith('HPE_')
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', { cause: code })
    : new Problem(
        'upstream_unreachable',
        'The bot service could not be reached, or broke off before it answered.',
        {
          cause: code || 'unknown',
        },
      );
}
