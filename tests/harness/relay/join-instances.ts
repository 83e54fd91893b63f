import { expect } from '@jest/globals';
import { bodyOf, type First, startJoinService, type WaysToAsk, waysToAsk } from '../clients/joining.ts';
import type { RawClient } from '../clients/raw-client.ts';
import { until } from '../clock/until.ts';
import { type FaultProxy, faultProxy } from '../faults/fault-proxy.ts';
import { type RedisServer, startRedis } from '../redis/redis.ts';
import { withoutLease } from '../runs/run-stores.ts';
import type { RawRequest } from '../service/raw-upstream.ts';
import { startRelay, type TestLimits, type TestRelay } from './relay.ts';

/** Instances that share a Redis, in front of one bot service. */
export type JoinInstances = Awaited<ReturnType<typeof startJoinInstances>>;

/** With these, all is stored, told and renewed soon, and a lease ends only by `lapse`. */
export const SOON: TestLimits = {
  leases: { leaseMs: 600_000, renewMs: 20, batchMs: 1, pollMs: 20, followedMs: 1_000 },
};

/**
 * Starts instances; the service begins each stream with what `first` returns, or answers by itself. Each instance can have
 * limits of its own.
 */
export async function startJoinInstances(
  count: number,
  environment: Record<string, string> = {},
  first: First = () => [],
  limits: TestLimits | readonly TestLimits[] = [],
) {
  const opened: (() => unknown)[] = [];
  const close = async () => {
    for (const closeOne of opened.splice(0).reverse()) await closeOne();
  };
  try {
    const redis = await startRedis();
    opened.push(() => redis.stop());
    const service = await startJoinService(first);
    const { upstream } = service;
    opened.push(() => upstream.close());
    /** Each instance has its own way to Redis. */
    const wires: FaultProxy[] = [];
    const relays: TestRelay[] = [];
    for (let n = 0; n < count; n++) {
      const wire = await faultProxy(redis.url);
      wires.push(wire);
      opened.push(() => wire.close());
      const settings = { JOIN: 'on', JOIN_GRACE_MS: '600000', REDIS_URL: wire.url, ...environment };
      const relay = await startRelay(upstream.url, settings, 'length' in limits ? limits[n] : limits);
      relays.push(relay);
      opened.push(() => relay.close());
    }
    const cookie = await (relays[0] as TestRelay).signIn();
    const clients: RawClient[] = [];
    opened.push(() => {
      for (const { socket } of clients) socket.destroy();
      for (const wire of wires) wire.mend();
    });
    const ways = relays.map((relay) => waysToAsk(relay, cookie, clients));
    const to = (at: number) => ways[at] as WaysToAsk;
    return {
      ...{ ...service, relays, redis, wires, cookie, close },
      /** Sends a message to an instance. */
      say: (at: number, changes: object = {}, headers: string[] = []) => to(at).say(changes, { headers }),
      /** Sends the message with another session. */
      sayAs: (other: string, at: number, changes: object = {}) => to(at).say(changes, { cookie: other }),
      byName: (at: number, options?: Parameters<WaysToAsk['byName']>[0]) => to(at).byName(options),
      leave: (at: number, client: RawClient) => to(at).leave(client),
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The message with this text, in a conversation of its own. */
export const messageOf = (text: string) => ({
  ...{ text, customMessageId: `message-number-${text}`, customChannelId: text },
});

/** The text of a message that has come to the service. */
export const textOf = ({ body }: RawRequest) => (JSON.parse(String(body)) as { text: string }).text;

/** How often the service has got each message, by its text, without resumptions. */
export function runsOf({ upstream }: JoinInstances): ReadonlyMap<string, number> {
  const runs = upstream.requests.filter(({ all }) => all('last-event-id').length === 0);
  return new Map(
    [...Map.groupBy(runs.map(textOf), (text) => text)].map(([text, { length }]) => [text, length]),
  );
}

/** Expects that no message has run twice. */
export function expectOneRunEach(all: JoinInstances): void {
  expect([...runsOf(all)].filter(([, count]) => count > 1)).toEqual([]);
}

/** The events of a stream that has ended, and the code of its error event. */
export async function endOf(client: RawClient): Promise<{ events: string; code: string | undefined }> {
  const [events = '', error] = (await bodyOf(client)).split('event: error');
  return { events, code: /"code":"([a-z_]+)"/.exec(error ?? '')?.[1] };
}

/** Ends the leases of all names, as time does. Their instances must not renew them. */
export async function lapse(redis: RedisServer): Promise<void> {
  for (const key of (await redis.command('KEYS', 'bot-relay:{*}:names')) as string[]) {
    const all = (await redis.command('HGETALL', key)) as Record<string, string>;
    for (const [field, value] of Object.entries(all)) {
      // The value of a message id has no lease.
      if (field.startsWith('m ')) continue;
      await redis.command('HSET', key, field, withoutLease(value));
    }
  }
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
