import type { Socket } from 'node:net';
import type { IdStorage } from '../../../src/client/session/bot-client.ts';
import { startClientPair } from '../clients/client-pair.ts';
import type { TestOptions } from '../clients/test-client.ts';
import { USER } from '../relay/relay.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../service/raw-upstream.ts';
import { startFakeLoadBalancer } from './fake-load-balancer.ts';

export type CuttingFront = Awaited<ReturnType<typeof startCuttingFront>>;

/**
 * A relay with joining on behind a load balancer that cuts connections, and a client that is signed in there. The bot
 * service sends nothing but the head of a stream by itself.
 */
export async function startCuttingFront(
  environment: Record<string, string> = {},
  options: Partial<TestOptions> = {},
) {
  /** Each call of the bot at the load balancer, as `METHOD operation`, and the id after which it asks for the rest. */
  const calls: string[] = [];
  let newest: Socket | undefined;
  let service: Socket | undefined;
  const front = await startFakeLoadBalancer({
    answer({ method, url = '', headers, socket }) {
      const [, operation] = /\/bot-provider\/[^/]+\/([^?]+)/.exec(url) ?? [];
      if (!operation) return false;
      calls.push([method, operation, headers['last-event-id']].filter(Boolean).join(' '));
      newest = socket;
      return false;
    },
  });
  const pair = await startClientPair(
    (socket) => {
      service = socket;
      socket.write(STREAM_HEAD);
    },
    { JOIN: 'on', JOIN_GRACE_MS: '60000', ...environment },
  );
  front.forwardTo(pair.relay.port);
  const newClient = (others: Partial<TestOptions> = {}) =>
    pair.newClient({ baseUrl: front.url, ...options, ...others });
  const client = newClient();
  await client.signIn(USER.name, USER.password);
  return {
    ...pair,
    ...{ front, client, newClient, calls },
    /** Cuts the connection of the newest call. */
    cut: () => void newest?.destroy(),
    /** Writes events into the newest stream of the bot service. */
    emit: (...events: readonly string[]) => void service?.write(Buffer.concat(events.map(chunk))),
    finish: () => void service?.write(LAST_CHUNK),
    async close() {
      await front.close();
      await pair.close();
    },
  };
}

/** A store in memory, as `sessionStorage`. */
export function memoryStore(): { readonly kept: Map<string, string>; readonly store: IdStorage } {
  const kept = new Map<string, string>();
  const store = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  return { kept, store };
}
