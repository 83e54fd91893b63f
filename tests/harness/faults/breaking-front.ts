import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { BotClientOptions } from '../../../src/client/session/bot-client.ts';
import { type ClientPair, startClientPair } from '../clients/client-pair.ts';
import { USER } from '../relay/relay.ts';
import { startFakeLoadBalancer } from './fake-load-balancer.ts';

/** A message as the load balancer got it. */
export interface Asked {
  readonly lastEventId: string | undefined;
  readonly body: string;
}

export type Reply = (socket: Socket, asked: Asked) => void;

export interface BreakingFront extends ClientPair {
  /** All messages, in order. */
  readonly asked: Asked[];
}

/**
 * A client that is signed in, and a load balancer that answers each message with the next of `answers`, and later ones
 * with the last; all other requests go to the relay, where nothing can be joined. So streams break between the client
 * and the relay, where only the client can resume them.
 */
export async function startBreakingFront(
  answers: readonly Reply[],
  options: Partial<BotClientOptions> = {},
): Promise<BreakingFront> {
  const asked: Asked[] = [];
  const front = await startFakeLoadBalancer({
    answer(req) {
      if (!req.url?.startsWith('/generic') || req.url.includes('/message/run?')) return false;
      text(req).then((body) => {
        const [lastEventId] = req.headersDistinct['last-event-id'] ?? [];
        asked.push({ lastEventId, body });
        answers[Math.min(asked.length, answers.length) - 1]?.(req.socket, { lastEventId, body });
      });
      return true;
    },
  });
  const pair = await startClientPair(() => {});
  front.forwardTo(pair.relay.port);
  const client = pair.newClient({ ...options, baseUrl: front.url });
  await client.signIn(USER.name, USER.password);
  return {
    ...pair,
    client,
    asked,
    async close() {
      await front.close();
      await pair.close();
    },
  };
}
