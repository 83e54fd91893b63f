import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';

/** A request as the load balancer has sent it. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

/** Takes the place of a relay behind a load balancer, and records its requests. */
export interface FakeRelay {
  /** All requests, without those for `/readyz`. */
  readonly seen: Seen[];
  readonly asked: () => number;
  /** What `/readyz` answers. */
  ready: boolean;
  /** Answers all other requests, when they are complete. */
  reply: Reply;
  /** If given, takes all other requests when their head has come, and records none. */
  take?: ((req: IncomingMessage, res: ServerResponse) => void) | undefined;
  /** Closes the port, as if the relay were gone. */
  close(): Promise<void>;
}

export type Reply = (res: ServerResponse, seen: Seen) => void;

/** Listens on `port`. */
export async function startFakeRelay(port: number, reply: Reply): Promise<FakeRelay> {
  const seen: Seen[] = [];
  let asked = 0;
  const server = createServer(async (req, res) => {
    if (req.url === '/readyz') {
      asked++;
      res.writeHead(relay.ready ? 200 : 503, { 'Cache-Control': 'no-store' }).end();
      return;
    }
    if (relay.take) return relay.take(req, res);
    const { method = '', url = '', headers } = req;
    const body = await buffer(req).catch(() => undefined);
    // A body that never came whole is not recorded.
    if (!body) return;
    const request = { method, url, headers, body };
    seen.push(request);
    relay.reply(res, request);
  });
  const relay: FakeRelay = {
    seen,
    asked: () => asked,
    ready: true,
    reply,
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

/** Sets the replies of both relays, and clears the requests that they have recorded. */
export function reply(relays: readonly [FakeRelay, FakeRelay], first: Reply, second: Reply): void {
  for (const relay of relays) relay.seen.length = 0;
  relays[0].reply = first;
  relays[1].reply = second;
}
