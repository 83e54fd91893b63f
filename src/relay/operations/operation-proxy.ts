import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, type ServerResponse } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { createProxyMiddleware, proxyEventsPlugin } from 'http-proxy-middleware';
import type { Secret } from '../../secret.ts';
import { withKey } from '../upstream/upstream-request.ts';
import type { OperationRequest } from './operation-request.ts';

/** One sending of a request. */
export interface Attempt {
  readonly request: OperationRequest;
  readonly key: Secret;
  /** Aborted, it closes the connection to the bot service; the promise rejects with its reason. */
  readonly signal: AbortSignal;
  /** Called when the request has been handed to the system's network. */
  readonly onSent: () => void;
}

/**
 * Sends a client's request upstream, once. Resolves with the answer's head and its body, of which nothing has been
 * read; rejects with the error of the system or of the HTTP parser. Nothing is written to the client's response.
 */
export type OperationProxy = (
  req: IncomingMessage,
  res: ServerResponse,
  attempt: Attempt,
) => Promise<IncomingMessage>;

/** Idle connections are dropped after this time, in ms: sooner than common servers drop theirs (5 s and more). */
const IDLE_MS = 4_000;
/** At most so many listeners of one event stay on the client's request or response after each run of the library. */
const LISTENERS = 3;

interface Waiting extends Attempt {
  readonly resolve: (answer: IncomingMessage) => void;
  readonly reject: (error: unknown) => void;
}

/** The attempts that are under way, by the request of the client. */
type AllWaiting = WeakMap<IncomingMessage, Waiting>;

/** The way to the bot service at the origin of `url`. It may be run again for the same request, which has no body. */
export function operationProxy({ origin, protocol }: Readonly<URL>): OperationProxy {
  const waiting: AllWaiting = new WeakMap();
  const Agent = protocol === 'https:' ? HttpsAgent : HttpAgent;
  const proxy = createProxyMiddleware({
    target: origin,
    agent: new Agent({ keepAlive: true, timeout: IDLE_MS }),
    changeOrigin: true,
    followRedirects: false,
    selfHandleResponse: true,
    // The default plugins write host and URL into answers and to the console.
    ejectPlugins: true,
    plugins: [proxyEventsPlugin],
    pathRewrite: (_path, req) => waiting.get(req)?.request.path,
    on: {
      proxyReq: (proxyReq, req) => prepare(proxyReq, waiting.get(req)),
      proxyRes: (answer, req) => handOver(answer, () => waiting.get(req)),
      error: (error, req) => waiting.get(req)?.reject(error),
    },
  });

  return async function proxyOperation(req, res, attempt) {
    attempt.signal.throwIfAborted();
    const { url } = req;
    // All that leaves, but for the key: so there is no `Expect`, with which `proxyReq` would be skipped.
    req.headers = { ...attempt.request.headers };
    for (const emitter of [req, res]) emitter.setMaxListeners(emitter.getMaxListeners() + LISTENERS);
    try {
      return await new Promise<IncomingMessage>((resolve, reject) => {
        attempt.signal.addEventListener('abort', () => reject(attempt.signal.reason), { once: true });
        waiting.set(req, { ...attempt, resolve, reject });
        void proxy(req, res, reject);
      });
    } finally {
      // For whoever answers: the library has put the path that went upstream here.
      req.url = url;
    }
  };
}

/** Readies a request that is about to leave: with the key, which the client's own request never holds. */
function prepare(proxyReq: ClientRequest, attempt: Waiting | undefined): void {
  if (!attempt || attempt.signal.aborted) return void proxyReq.destroy();
  const { headers } = withKey(attempt.request, attempt.key);
  for (const [name, value] of Object.entries(headers)) proxyReq.setHeader(name, value);
  proxyReq.once('finish', attempt.onSent);
  // Without an error, such as after 101: a request that is over and has brought no answer will bring none.
  proxyReq.once('close', () => attempt.reject(new Error('no answer came')));
  attempt.signal.addEventListener('abort', () => proxyReq.destroy(), { once: true });
}

/** Hands the answer to the attempt that waits for it. */
function handOver(answer: IncomingMessage, attempt: () => Waiting | undefined): void {
  // Right after this, httpxy has the client's response destroyed if the answer breaks off. It is ours to answer.
  process.nextTick(() => {
    answer.removeAllListeners('close').removeAllListeners('error');
    answer.on('error', () => {});
    attempt()?.resolve(answer);
  });
}
