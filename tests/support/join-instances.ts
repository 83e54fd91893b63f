import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { bodyOf, ID, messageBody } from './joining.ts';
import { type RawClient, rawClient, rawMessage } from './raw-client.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from './raw-upstream.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type RedisProxy, startRedisProxy } from './redis-proxy.ts';
import { BOT_PATH, startRelay, type TestRelay } from './relay.ts';

/** A guard against hanging, in ms. */
const READY_MS = 20_000;

/** Instances that share a Redis, in front of one bot service. */
export interface JoinInstances {
  readonly relays: readonly TestRelay[];
  readonly redis: RedisServer;
  /** Each instance has its own way to Redis. */
  readonly wires: readonly RedisProxy[];
  readonly upstream: RawUpstream;
  readonly cookie: string;
  /** Sends the message with another session. */
  sayAs(cookie: string, at: number): RawClient;
  /** The bot service's end of each stream, in the order of the requests. */
  readonly streams: readonly Socket[];
  /** Sends a message to an instance. */
  say(at: number, changes?: object, headers?: readonly string[]): RawClient;
  /** Asks an instance for the run of a message by its id alone. */
  byName(
    at: number,
    options?: { readonly id?: string; readonly cookie?: string; readonly headers?: readonly string[] },
  ): RawClient;
  /** Writes events into the newest stream. */
  emit(...events: readonly string[]): void;
  finish(): void;
  close(): Promise<void>;
}

/** Starts instances; the service begins each stream with what `first` returns, or answers by itself. */
export async function startJoinInstances(
  count: number,
  environment: Record<string, string> = {},
  first: (request: RawRequest, socket: Socket) => readonly string[] | undefined = () => [],
): Promise<JoinInstances> {
  const opened: (() => unknown)[] = [];
  const close = async () => {
    for (const closeOne of opened.splice(0).reverse()) await closeOne();
  };
  try {
    const redis = await startRedis();
    opened.push(() => redis.stop());
    const streams: Socket[] = [];
    const upstream = await startRawUpstream((socket, request) => {
      streams.push(socket);
      const events = first(request, socket);
      if (events) socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]));
    });
    opened.push(() => upstream.close());
    const wires: RedisProxy[] = [];
    const relays: TestRelay[] = [];
    for (let n = 0; n < count; n++) {
      const wire = await startRedisProxy(redis.url);
      wires.push(wire);
      opened.push(() => wire.close());
      const relay = await startRelay(upstream.url, { JOIN: 'on', REDIS_URL: wire.url, ...environment });
      relays.push(relay);
      opened.push(() => relay.close());
      // `startRelay` waits for half a second, which can be too short on a busy machine.
      await relay.redis?.ready(READY_MS);
    }
    const cookie = await (relays[0] as TestRelay).signIn();
    const clients: RawClient[] = [];
    opened.push(() => {
      for (const { socket } of clients) socket.destroy();
      for (const wire of wires) wire.mend();
    });
    const shared = { relays, redis, wires, upstream, cookie, streams };
    return { ...shared, ...waysToAsk(shared, clients), close };
  } catch (error) {
    await close();
    throw error;
  }
}

function waysToAsk(
  { relays, cookie, streams }: Pick<JoinInstances, 'relays' | 'cookie' | 'streams'>,
  clients: RawClient[],
): Pick<JoinInstances, 'sayAs' | 'say' | 'byName' | 'emit' | 'finish'> {
  const ask = (at: number, text: string) => {
    const client = rawClient((relays[at] as TestRelay).port, text);
    clients.push(client);
    return client;
  };
  return {
    sayAs: (other, at) =>
      ask(at, rawMessage({ cookie: other, body: messageBody(), headers: ['Connection: close'] })),
    say: (at, changes = {}, headers = []) =>
      ask(at, rawMessage({ cookie, body: messageBody(changes), headers: ['Connection: close', ...headers] })),
    byName(at, { id = ID, cookie: as = cookie, headers = [] } = {}) {
      const path = BOT_PATH.replace('/message/sse', '/message/run');
      const query = new URLSearchParams({ custom_channel_id: 'c1', custom_message_id: id });
      const lines = [`GET ${path}?${query} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${as}`];
      return ask(at, `${[...lines, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n`);
    },
    emit: (...events) => void streams.at(-1)?.write(Buffer.concat(events.map(chunk))),
    finish: () => void streams.at(-1)?.write(LAST_CHUNK),
  };
}

/** The events of a stream that has ended, and the code of its error event. */
export async function endOf(client: RawClient): Promise<{ events: string; code: string | undefined }> {
  const [events = '', error] = (await bodyOf(client)).split('event: error');
  return { events, code: /"code":"([a-z_]+)"/.exec(error ?? '')?.[1] };
}

/** Resolves once Redis knows that no run goes on but `left` of them. */
export async function runsEnded(redis: RedisServer, left = 0): Promise<void> {
  for (;;) {
    const runs = (await redis.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    const states = await Promise.all(runs.map((run) => redis.command('HGET', run, 'state')));
    if (states.filter((state) => state === 'live').length <= left) return;
    await sleep(50);
  }
}

/** Resolves with the keys of runs in Redis once they are as many as `isGood` wants. */
export async function keysWhen(redis: RedisServer, isGood: (keys: readonly string[]) => boolean) {
  for (;;) {
    const keys = (await redis.command('KEYS', 'bot-relay:{runs}:*')) as string[];
    if (isGood(keys)) return keys;
    await sleep(50);
  }
}
