import type { Socket } from 'node:net';
import { expect } from '@jest/globals';
import { bodyOf, ID, messageBody } from '../clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { until } from '../clock/until.ts';
import { type FaultProxy, faultProxy } from '../faults/fault-proxy.ts';
import { type RedisServer, startRedis } from '../redis/redis.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../service/raw-upstream.ts';
import { BOT_PATH, startRelay, type TestLimits, type TestRelay } from './relay.ts';

/** Instances that share a Redis, in front of one bot service. */
export interface JoinInstances {
  readonly relays: readonly TestRelay[];
  readonly redis: RedisServer;
  /** Each instance has its own way to Redis. */
  readonly wires: readonly FaultProxy[];
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
  /** Closes the connection of a client at an instance; resolves when that instance knows it. */
  leave(at: number, client: RawClient): Promise<void>;
  /** Writes events into the newest stream. */
  emit(...events: readonly string[]): void;
  finish(): void;
  close(): Promise<void>;
}

/**
 * Starts instances; the service begins each stream with what `first` returns, or answers by itself. Each instance can have
 * limits of its own.
 */
export async function startJoinInstances(
  count: number,
  environment: Record<string, string> = {},
  first: (request: RawRequest, socket: Socket) => readonly string[] | undefined = () => [],
  limits: readonly TestLimits[] = [],
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
    const wires: FaultProxy[] = [];
    const relays: TestRelay[] = [];
    for (let n = 0; n < count; n++) {
      const wire = await faultProxy(redis.url);
      wires.push(wire);
      opened.push(() => wire.close());
      const settings = { JOIN: 'on', JOIN_GRACE_MS: '600000', REDIS_URL: wire.url, ...environment };
      const relay = await startRelay(upstream.url, settings, limits[n]);
      relays.push(relay);
      opened.push(() => relay.close());
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
): Pick<JoinInstances, 'sayAs' | 'say' | 'byName' | 'leave' | 'emit' | 'finish'> {
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
    async leave(at, client) {
      const { open } = relays[at] as TestRelay;
      const before = open.count();
      client.socket.destroy();
      await until(() => open.count() < before);
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

/** The states of all names in Redis: claimed (`c`), confirmed (`s`), kept (`k`) or over (`o`). */
export async function statesOfNames(redis: RedisServer): Promise<string[]> {
  const keys = (await redis.command('KEYS', 'bot-relay:{*}:names')) as string[];
  const names = await Promise.all(keys.map((key) => redis.command('HVALS', key) as Promise<string[]>));
  // The values of message ids have no state.
  return names.flat().flatMap((text) => /^\d+ ([csko]) /.exec(text)?.[1] ?? []);
}

/** Resolves once Redis knows that no run goes on but `left` of them. */
export async function runsEnded(redis: RedisServer, left = 0): Promise<void> {
  await until(async () => {
    const states = await statesOfNames(redis);
    return states.filter((state) => state === 'c' || state === 's').length <= left;
  }, 50);
}

/** Resolves with the keys of runs in Redis once they are as many as `isGood` wants. */
export async function keysWhen(redis: RedisServer, isGood: (keys: readonly string[]) => boolean) {
  let keys: string[] = [];
  await until(async () => {
    const all = (await redis.command('KEYS', 'bot-relay:{*}:*')) as string[];
    keys = all.filter((key) => /\}:(names|stopped|run:.+|log:.+)$/.test(key));
    return isGood(keys);
  }, 50);
  return keys;
}

/** Resolves with the offset up to which the log of the only run in Redis is stored. */
export async function storedUpTo(redis: RedisServer): Promise<number> {
  const isLog = (key: string) => key.includes(':log:');
  const log = (await keysWhen(redis, (keys) => keys.some(isLog))).find(isLog) ?? '';
  const [newest] = (await redis.command('XREVRANGE', log, '+', '-', 'COUNT', '1')) as string[][];
  // The id of an entry is the offset of its end.
  return Number.parseInt(newest?.[0] ?? '0', 10);
}

/** Expects of each key of runs in Redis that it expires once no message can wait or run any more. */
export async function expectExpiring(redis: RedisServer): Promise<void> {
  for (const key of await keysWhen(redis, () => true)) {
    const leftMs = Number(await redis.command('PTTL', key));
    // -2 is that of a key that has just gone, and -1 that of one that stays.
    expect([key, leftMs !== -1 && leftMs < 300_000]).toEqual([key, true]);
  }
}
