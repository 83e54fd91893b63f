import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';
import { Problem, problemDocument } from '../errors.ts';

/** How long a scraper may take over a request, in ms. */
const REQUEST_TIMEOUT_MS = 10_000;

export interface MetricsServerOptions {
  /** By default, the system chooses a free port. */
  readonly port?: number | undefined;
  readonly host: string;
  readonly registry: Pick<Registry, 'contentType' | 'metrics'>;
}

export interface MetricsServer {
  readonly port: number;
  /** Closes at once; a running scrape is cut. */
  close(): Promise<void>;
}

/**
 * Serves `GET /metrics` in Prometheus's text format, and nothing else, on a separate port. Writes nothing to the log.
 * @throws the system's error if it cannot listen on the address
 */
export async function startMetricsServer({
  port,
  host,
  registry,
}: MetricsServerOptions): Promise<MetricsServer> {
  const server = createServer({ headersTimeout: REQUEST_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS });
  server.on('request', (req, res) => {
    answer(req, res, registry).catch((error: unknown) => refuse(res, asProblem(error)));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  registry: MetricsServerOptions['registry'],
): Promise<void> {
  if (req.url?.split('?', 1)[0] !== '/metrics') {
    throw new Problem('not_found', 'There is nothing at this path.');
  }
  if (req.method !== 'GET' && req.method !== 'HEAD') {
    throw new Problem('method_not_allowed', 'This path takes GET, HEAD.', {
      headers: { Allow: 'GET, HEAD' },
    });
  }
  const text = await registry.metrics();
  send(res, registry.contentType, text);
}

function refuse(res: ServerResponse, problem: Problem): void {
  res.statusCode = problem.status;
  for (const [name, value] of Object.entries(problem.options.headers ?? {})) res.setHeader(name, value);
  const requestId = randomUUID();
  res.setHeader('X-Request-Id', requestId);
  send(res, 'application/problem+json', JSON.stringify(problemDocument(problem, requestId)));
}

function send(res: ServerResponse, type: string, text: string): void {
  res.setHeader('Content-Type', type);
  res.setHeader('Content-Length', Buffer.byteLength(text));
  res.setHeader('Cache-Control', 'no-store');
  res.setHeader('X-Content-Type-Options', 'nosniff');
  res.end(text);
}

function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem('internal_error', 'The metrics could not be read.');
}
