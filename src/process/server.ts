import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Express } from 'express';
import { type ConnectionsOptions, serveConnections } from '../arrive/connections.ts';
import { Problem } from '../errors.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import { LAST_WORDS_MS } from './shutdown-times.ts';
import type { StopSignal } from './worker-channel.ts';

/**
 * Above the idle timeouts of common load balancers, which must be the ones to drop a kept connection: up to the
 * 600 s that Google Cloud's load balancers hold one, and let nobody change.
 */
const KEEP_ALIVE_MS = 620_000;
const HEADERS_TIMEOUT_MS = 10_000;
/** Above the body's own timeout, which can answer in order. */
const REQUEST_TIMEOUT_MS = 60_000;
const TIMEOUT_CHECK_MS = 2_000;
/** How long a connection may take to say something once the relay drains. */
const SILENT_MS = 500;

type Phase = 'starting' | 'serving' | 'leaving' | 'draining';

/** `serving` → `leaving` (not ready, but still serving) → `draining` (the listener is closed). */
export interface Lifecycle {
  enter(phase: Phase): void;
  isReady(): boolean;
  isDraining(): boolean;
}

export function createLifecycle(): Lifecycle {
  let phase: Phase = 'starting';
  return {
    enter(next) {
      phase = next;
    },
    isReady: () => phase === 'serving',
    isDraining: () => phase === 'draining',
  };
}

export interface ServerOptions extends ConnectionsOptions {
  readonly port: number;
  readonly host: string;
  /** Times in ms: how long to stay reachable while not ready, and how long open streams may go on after that. */
  readonly shutdown: { readonly delayMs: number; readonly graceMs: number };
  readonly lifecycle: Lifecycle;
  readonly open: OpenMessages;
}

export interface RunningServer {
  readonly port: number;
  /**
   * Shuts down: not ready, delay, no new connections, grace for open streams. Resolves when all is closed.
   * With SIGINT there is no delay: a person at a terminal sends it, and no load balancer waits to be told.
   */
  close(signal?: StopSignal): Promise<void>;
}

/** Listens. @throws the system's error if the address cannot be had */
export async function startServer(app: Express, options: ServerOptions): Promise<RunningServer> {
  const { lifecycle, open, shutdown } = options;
  const server = createServer({
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    // The application says in JSON that the Host is missing.
    requireHostHeader: false,
  });
  const connections = serveConnections(server, app, options);
  await listen(server, options);
  lifecycle.enter('serving');
  return {
    port: (server.address() as AddressInfo).port,
    async close(signal) {
      lifecycle.enter('leaving');
      if (signal !== 'SIGINT') await sleep(shutdown.delayMs);
      lifecycle.enter('draining');
      const closed = new Promise((resolve) => server.close(resolve));
      connections.closeWhenIdle();
      const silent = setInterval(() => connections.closeUnanswering(), SILENT_MS);
      const ending = setTimeout(() => {
        open.endAll(new Problem('draining', 'The relay is shutting down; the answer is not complete.'));
        setTimeout(() => server.closeAllConnections(), LAST_WORDS_MS).unref();
      }, shutdown.graceMs);
      await closed;
      clearTimeout(ending);
      clearInterval(silent);
    },
  };
}

function listen(server: Server, { port, host }: ServerOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
