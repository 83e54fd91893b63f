import {
  type Agent,
  type ClientRequest,
  Agent as HttpAgent,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { createProxyMiddleware, type Options, proxyEventsPlugin } from 'http-proxy-middleware';
import { freeBytes } from '../../http/body.ts';
import type { Secret } from '../../secret.ts';
import { withKey } from '../upstream/upstream-request.ts';
import type { OperationRequest } from './operation-request.ts';

/** One sending of a request. */
export interface ProxySending {
  readonly request: OperationRequest;
  readonly key: Secret;
  /** Aborted, it closes the connection to the bot service, and the promise rejects with its reason. */
  readonly signal: AbortSignal;
  /** Called when there is a connection: from now on, a part of the request may have left. */
  readonly onLeaving: () => void;
  /** Called when the operating system has taken the whole request. */
  readonly onSent: () => void;
}

/**
 * Sends a client's request upstream, once. Resolves with the answer, whose body is unread; rejects with the error of the
 * system or of the HTTP parser. Nothing is written to the client's response.
 */
type OperationProxy = (
  req: IncomingMessage,
  res: ServerResponse,
  sending: ProxySending,
) => Promise<IncomingMessage>;

/** Idle connections are closed after this time, in ms: sooner than common servers close theirs (5 s and more). */
const IDLE_MS = 4_000;
/** How many listeners of one event the library may leave on the client's request or response after each sending. */
const LISTENERS = 3;

interface Waiting extends ProxySending {
  readonly resolve: (answer: IncomingMessage) => void;
  readonly reject: (error: unknown) => void;
}

/** The sendings that wait for an answer, by the request of the client. */
type AllWaiting = WeakMap<IncomingMessage, Waiting>;

/**
 * Makes the proxy to the bot service at the origin of `url`. It can send the same request again, unless its body is a
 * stream: JSON of the client has been read before, and is written from its bytes.
 */
export function operationProxy({ origin, protocol }: Readonly<URL>): OperationProxy {
  const waiting: AllWaiting = new WeakMap();
  const Agent = protocol === 'https:' ? HttpsAgent : HttpAgent;
  const proxy = createProxyMiddleware({
    target: origin,
    agent: readInPlace(new Agent({ keepAlive: true, timeout: IDLE_MS })),
    changeOrigin: true,
    followRedirects: false,
    selfHandleResponse: true,
    // The default plugins write host and URL into answers and to the console.
    ejectPlugins: true,
    plugins: [proxyEventsPlugin],
    pathRewrite: (_path, req, ...[, options]) => rewrite(waiting.get(req)?.request, options),
    on: {
      proxyReq: (proxyReq, req) => prepare(proxyReq, waiting.get(req)),
      proxyRes: (answer, req) => handOver(answer, () => waiting.get(req)),
      error: (error, req) => waiting.get(req)?.reject(error),
    },
  });

  return async function proxyOperation(req, res, sending) {
    sending.signal.throwIfAborted();
    const { url } = req;
    // Only these headers are sent, and the key. Without `Expect`: the library would skip `proxyReq` for it.
    req.headers = { ...sending.request.headers };
    for (const emitter of [req, res]) emitter.setMaxListeners(emitter.getMaxListeners() + LISTENERS);
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const abort = () => reject(sending.signal.reason);
    sending.signal.addEventListener('abort', abort, { once: true });
    waiting.set(req, { ...sending, resolve, reject });
    try {
      void proxy(req, res, reject);
      return await promise;
    } finally {
      // Node.js keeps a combined signal that has a listener until it aborts, which it may never do.
      sending.signal.removeEventListener('abort', abort);
      // The library has replaced this with the upstream path.
      req.url = url;
    }
  };
}

/** Sets what differs from request to request; `options` is the library's own copy for this one. Returns the path. */
function rewrite(request: OperationRequest | undefined, options: Options | undefined): string | undefined {
  if (request?.stream && options) options.buffer = request.stream;
  return request?.path;
}

/** Prepares a request right before it is sent: adds the key, which the client's own request never has, and the body. */
function prepare(proxyReq: ClientRequest, sending: Waiting | undefined): void {
  if (!sending || sending.signal.aborted) return void proxyReq.destroy();
  const { headers, body } = withKey(sending.request, sending.key);
  for (const [name, value] of Object.entries(headers)) proxyReq.setHeader(name, value);
  // The library calls this when the request gets its socket: a new one, or one that is connected.
  if (proxyReq.socket?.connecting) proxyReq.socket.once(connected(proxyReq.protocol), sending.onLeaving);
  else sending.onLeaving();
  proxyReq.once('finish', sending.onSent);
  const abort = () => void proxyReq.destroy();
  sending.signal.addEventListener('abort', abort, { once: true });
  proxyReq.once('close', () => {
    sending.signal.removeEventListener('abort', abort);
    // A request can close without answer and without error, for example after status 101.
    sending.reject(new Error('there was no answer'));
  });
  if (sending.request.stream) freeSent(sending.request.stream, proxyReq);
  // The library's `fixRequestBody` would serialize a parsed body anew. The request ends with that of the client.
  if (body) proxyReq.write(body);
}

/** The event after which the first byte of a request can leave. */
function connected(protocol: string): 'secureConnect' | 'connect' {
  return protocol === 'https:' ? 'secureConnect' : 'connect';
}

/** Hands the answer to the sending that waits for it. */
function handOver(answer: IncomingMessage, sending: () => Waiting | undefined): void {
  // After this, httpxy adds listeners that destroy the client's response if the answer breaks off. Remove them.
  process.nextTick(() => {
    answer.removeAllListeners('close').removeAllListeners('error');
    answer.on('error', () => {});
    sending()?.resolve(answer);
  });
}

/**
 * Frees the chunks of `body` as soon as the operating system has taken them. `body` may be piped into `request` before
 * or after: a chunk is freed only if those behind it are all that `request` still holds.
 */
export function freeSent(body: Readable, request: ClientRequest): void {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  const free = () => {
    // This length has the framing of chunks in it, too, so that it is never too low.
    const waiting = request.writableLength;
    let count = 0;
    for (const bytes of kept) {
      if (keptBytes - bytes.length < waiting) break;
      keptBytes -= bytes.length;
      count += 1;
      freeBytes(bytes);
    }
    kept = kept.slice(count);
  };
  body.on('data', (bytes: Buffer) => {
    // Before this chunk is counted, since it may not have been written.
    free();
    kept.push(bytes);
    keptBytes += bytes.length;
  });
  request.on('drain', free);
}

/** As much as Node.js reads at once, in bytes. */
const READ_BYTES = 65_536;

/**
 * Has every connection of `agent` read into one buffer of its own (`onread` of `net.Socket`). Otherwise each read takes
 * a new one, and V8 goes through its whole heap for every few dozen MB of them. The HTTP parser copies what it hands
 * over.
 */
export function readInPlace<T extends Agent>(agent: T): T {
  const connect = agent.createConnection;
  agent.createConnection = (options, done) => {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    const callback = (length: number) => {
      // An idle connection has no listener, and what comes there answers no request.
      if (!socket.emit('data', buffer.subarray(0, length))) socket.destroy();
      return true;
    };
    const socket = connect.call(
      agent,
      { ...options, onread: { buffer, callback } } as typeof options,
      done,
    ) as Socket;
    return socket;
  };
  return agent;
}
