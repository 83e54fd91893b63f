import type { Socket } from 'node:net';
import type { BotClient, BotEvent } from '../../../src/client/session/bot-client.ts';
import { startRelay, USER } from '../relay/relay.ts';
import { type RawRequest, startRawUpstream } from '../service/raw-upstream.ts';
import { type TestOptions, testClient } from './test-client.ts';

export type ClientPair = Awaited<ReturnType<typeof startClientPair>>;

/** Starts a raw upstream that answers with `onRequest`, a relay in front of it and a client that is signed in. */
export async function startClientPair(
  onRequest: (socket: Socket, request: RawRequest) => void,
  environment: Record<string, string> = {},
  options: Partial<TestOptions> = {},
) {
  const upstream = await startRawUpstream(onRequest);
  // So that the upstream sees at once that a client has left.
  const relay = await startRelay(upstream.url, { JOIN_GRACE_MS: '0', ...environment });
  const settings = { namespace: 'acme', botProviderName: 'helper', ...options };
  /** Another client of the same bot, without a session. */
  const newClient = (others: Partial<TestOptions> = {}) =>
    testClient({ baseUrl: relay.url, ...settings, ...others });
  const client = newClient();
  await client.signIn(USER.name, USER.password);
  return {
    upstream,
    relay,
    client,
    newClient,
    async close() {
      await relay.close();
      await upstream.close();
    },
  };
}

/** What was read of an answer: its events, and the error that ended it, if any. */
interface Reading {
  readonly events: BotEvent[];
  readonly error: unknown;
}

/** Reads an answer to its end, and waits for `onEvent` after each event. */
export async function readAll(
  stream: AsyncIterable<BotEvent>,
  onEvent: (event: BotEvent) => unknown = () => {},
): Promise<Reading> {
  const events: BotEvent[] = [];
  try {
    for await (const event of stream) {
      events.push(event);
      await onEvent(event);
    }
  } catch (error) {
    return { events, error };
  }
  return { events, error: undefined };
}

/** The data of events. */
export const dataOf = (events: readonly { readonly raw: unknown }[]) => events.map(({ raw }) => raw);

/** Counts the `signed-out` events of a client. */
export function countSignOuts(client: BotClient): () => number {
  let count = 0;
  client.addEventListener('signed-out', () => count++);
  return () => count;
}
