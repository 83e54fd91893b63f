import type { Socket } from 'node:net';
import { type BotClient, type BotClientOptions, createBotClient } from '../../src/client/bot-client.ts';
import type { BotEvent } from '../../src/client/read-events.ts';
import { type RawRequest, type RawUpstream, startRawUpstream } from './raw-upstream.ts';
import { startRelay, type TestRelay, USER } from './relay.ts';

export interface ClientPair {
  readonly upstream: RawUpstream;
  readonly relay: TestRelay;
  /** Signed in, unless the environment says another way to. */
  readonly client: BotClient;
  /** Another client of the same bot, signed in by nobody. */
  newClient(options?: Partial<BotClientOptions>): BotClient;
  close(): Promise<void>;
}

/** A raw upstream that answers with `onRequest`, a relay in front of it and a signed-in client of that. */
export async function startClientPair(
  onRequest: (socket: Socket, request: RawRequest) => void,
  environment: Record<string, string> = {},
  options: Partial<BotClientOptions> = {},
): Promise<ClientPair> {
  const upstream = await startRawUpstream(onRequest);
  const relay = await startRelay(upstream.url, environment);
  const settings = { namespace: 'acme', botProviderName: 'helper', ...options };
  const newClient = (others: Partial<BotClientOptions> = {}) =>
    createBotClient({ baseUrl: relay.url, ...settings, ...others });
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

/** How reading an answer went: the events, and what was thrown in the end, if anything. */
export interface Reading {
  readonly events: BotEvent[];
  readonly error: unknown;
}

/** Reads an answer to its end; `onEvent` may take its time. */
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

/** Tells how often `signed-out` was raised. */
export function countSignOuts(client: BotClient): () => number {
  let count = 0;
  client.addEventListener('signed-out', () => count++);
  return () => count;
}
