import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Express } from 'express';
import { problemResponse } from '../../../src/arrive/problem-response.ts';
import { requestId } from '../../../src/arrive/request-head.ts';
import { securityHeaders } from '../../../src/arrive/security-headers.ts';
import { createLogger } from '../../../src/logger.ts';

export type TestApp = Awaited<ReturnType<typeof startTestApp>>;

/**
 * Starts a small application on a free port, for stages that are tested alone: with a request id, security headers,
 * what `build` adds, and errors answered as problems.
 */
export async function startTestApp(build: (app: Express) => void) {
  /** All log lines so far, as text. */
  const printed: string[] = [];
  const app = express();
  app.use(requestId(), securityHeaders({ https: false }));
  build(app);
  app.use(problemResponse(createLogger('debug', { write: (line: string) => void printed.push(line) })));
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    printed,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
