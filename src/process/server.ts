import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Express } from 'express';
import { type ConnectionsOptions, messageClasses, serveConnections } from '../arrive/serve-connections.ts';
import { Problem } from '../errors.ts';
import type { OpenMessages } from '../relay/message/open-messages.ts';
import type { Runs } from '../runs/runs.ts';
import type { StopSignal } from './shutdown.ts';

const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than the relay's own timeouts for a body or an upload, which answer with a problem. */
const REQUEST_TIMEOUT_MS = 620_000;
const TIMEOUT_CHECK_MS = 2_000;
/** How long streams have to send their final event when the grace is over, in ms. Then all connections are cut. */
export const FINAL_EVENT_MS = 6_000;
/** How often connections without an answer under way are closed once the relay drains, in ms. */
const CLOSE_SILENT_EVERY_MS = 500;
/** How often the relay checks whether it still carries runs, in ms. */
const RUNS_EVERY_MS = 50;

type Phase = 'starting' | 'serving' | 'leaving' | 'draining';

/** `starting` → `serving` → `leaving` (not ready, but still serving) → `draining` (takes no connection). */
export interface Lifecycle {
  enter(phase: Phase): void;
  isReady(): boolean;
  isDraining(): boolean;
}

/** Makes the lifecycle of an instance that is starting. */
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
  /** How long a connection may be idle after an answer, in ms. */
  readonly keepAliveMs: number;
  /** Times in ms: how long to serve while not ready, and how long open streams may go on after that. */
  readonly shutdown: { readonly delayMs: number; readonly graceMs: number };
  readonly lifecycle: Lifecycle;
  readonly open: OpenMessages;
  readonly runs?: Pick<Runs, 'areShared' | 'carriesAny'>;
}

export interface RunningServer {
  readonly port: number;
  /**
   * Shuts down: not ready, delay, no new connections, grace for open streams, and for runs that clients of other
   * instances read or may come back to. Resolves when all is closed.
   * With SIGINT there is no delay: it comes from a person at a terminal, where there is no load balancer.
   */
  close(signal?: StopSignal): Promise<void>;
}

/** Listens. @throws the system's error if the address cannot be used */
export async function startServer(app: Express, options: ServerOptions): Promise<RunningServer> {
  const { lifecycle, open, shutdown, runs } = options;
  const server = createServer({
    ...messageClasses(app),
    keepAliveTimeout: options.keepAliveMs,
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: TIMEOUT_CHECK_MS,
    // The application itself answers with a problem if Host is missing.
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
      const draining = new Problem('draining', 'The relay is shutting down; the answer is not complete.');
      // Nobody can come back to a run of this instance alone.
      open.endKinds(runs?.areShared ? ['live'] : ['live', 'left'], draining);
      const closed = new Promise((resolve) => server.close(resolve));
      connections.closeWhenIdle();
      const silent = setInterval(() => connections.closeUnlessAnswering(), CLOSE_SILENT_EVERY_MS);
      let isOver = false;
      const ending = setTimeout(() => {
        isOver = true;
        open.endAll(draining);
        setTimeout(() => server.closeAllConnections(), FINAL_EVENT_MS).unref();
      }, shutdown.graceMs);
      await closed;
      clearInterval(silent);
      // Messages give back what they hold a moment after the connections of their clients have closed.
      await new Promise(setImmediate);
      while (!isOver && runs?.carriesAny()) await sleep(RUNS_EVERY_MS);
      clearTimeout(ending);
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
