import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';

/** A request as it came out of the load balancer. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** Stands where a relay would stand, and sees what the load balancer sends there. */
export interface FakeRelay {
  /** Every request but those for `/readyz`. */
  readonly seen: Seen[];
  readonly asked: () => number;
  /** What `/readyz` answers. */
  ready: boolean;
  /** Closes the port, as a relay that is gone. */
  close(): Promise<void>;
}

export type Reply = (res: ServerResponse, seen: Seen) => void;

/** Listens on `port`; answers with `reply` once a request is whole. */
export async function startFakeRelay(port: number, reply: Reply): Promise<FakeRelay> {
  const seen: Seen[] = [];
  let asked = 0;
  const server = createServer(async (req, res) => {
    if (req.url === '/readyz') {
      asked++;
      res.writeHead(relay.ready ? 200 : 503, { 'Cache-Control': 'no-store' }).end();
      return;
    }
    const { method = '', url = '', headers } = req;
    const body = await buffer(req).catch(() => undefined);
    // What never came whole cannot run.
    if (!body) return;
    const request = { method, url, headers, body };
    seen.push(request);
    reply(res, request);
  });
  const relay: FakeRelay = {
    seen,
    asked: () => asked,
    ready: true,
    async close() {
      if (!server.listening) return;
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return relay;
}
