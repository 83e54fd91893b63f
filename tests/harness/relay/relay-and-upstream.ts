import type { Socket } from 'node:net';
import { type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { type RawRequest, type RawUpstream, startRawUpstream } from '../service/raw-upstream.ts';
import { startRelay, type TestLimits, type TestRelay } from './relay.ts';

export interface RelayAndUpstream {
  readonly upstream: RawUpstream;
  readonly relay: TestRelay;
  /** The `Cookie` header of a signed-in user. */
  readonly cookie: string;
  /** Sends a message over a new connection, with that cookie; `message` can set its parts. */
  ask(message?: Parameters<typeof rawMessage>[0]): RawClient;
  /** Closes the clients, the relay and the upstream, in this order. */
  close(): Promise<void>;
}

/** Starts a raw upstream that answers with `onRequest` and a relay in front of it, and signs a user in. */
export async function startRelayAndUpstream(
  onRequest: (socket: Socket, request: RawRequest) => void,
  environment: Record<string, string> = {},
  limits: TestLimits = {},
): Promise<RelayAndUpstream> {
  return startRelayBefore(await startRawUpstream(onRequest), environment, limits);
}

/** Starts a relay in front of a raw upstream, and signs a user in. */
export async function startRelayBefore(
  upstream: RawUpstream,
  environment: Record<string, string>,
  limits: TestLimits,
): Promise<RelayAndUpstream> {
  const relay = await startRelay(upstream.url, environment, limits);
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
