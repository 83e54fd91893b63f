import type { Socket } from 'node:net';
import { type RawClient, rawClient, rawMessage } from './raw-client.ts';
import { type RawRequest, type RawUpstream, startRawUpstream } from './raw-upstream.ts';
import { startRelay, type TestRelay } from './relay.ts';

export interface Pair {
  readonly upstream: RawUpstream;
  readonly relay: TestRelay;
  /** The `Cookie` header of a signed-in user. */
  readonly cookie: string;
  /** Sends a message over a connection of its own, with that cookie and whatever else `message` says. */
  ask(message?: Parameters<typeof rawMessage>[0]): RawClient;
  /** Closes the clients, the relay and the upstream, in this order. */
  close(): Promise<void>;
}

/** A raw upstream that answers with `onRequest`, a relay in front of it and a signed-in user. */
export async function startPair(
  onRequest: (socket: Socket, request: RawRequest) => void,
  environment: Record<string, string> = {},
): Promise<Pair> {
  const upstream = await startRawUpstream(onRequest);
  const relay = await startRelay(upstream.url, environment);
  const cookie = await relay.signIn();
  const clients: RawClient[] = [];
  return {
    upstream,
    relay,
    cookie,
    ask(message = {}) {
      const client = rawClient(relay.port, rawMessage({ cookie, ...message }));
      clients.push(client);
      return client;
    },
    async close() {
      for (const client of clients) client.socket.destroy();
      await relay.close();
      await upstream.close();
    },
  };
}

/** A whole response of an upstream, whose body is `body` with its length before it. */
export function plainAnswer(statusLine: string, headers: readonly string[], body = ''): string {
  const head = [`HTTP/1.1 ${statusLine}`, ...headers, `Content-Length: ${Buffer.byteLength(body)}`];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** Resolves as soon as `condition` holds. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}
