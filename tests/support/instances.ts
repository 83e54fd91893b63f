import type { Socket } from 'node:net';
import type { SessionLimits } from '../../src/authenticate/sessions/session.ts';
import { countAwakeMs } from './awake.ts';
import { type Answer, call } from './call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from './raw-client.ts';
import { chunk, type RawUpstream, STREAM_HEAD, startRawUpstream } from './raw-upstream.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type RedisProxy, startRedisProxy } from './redis-proxy.ts';
import { startRelay, type TestRelay } from './relay.ts';

export interface InstancesOptions {
  readonly count: number;
  /** Whether they share a Redis of their own. */
  readonly shared: boolean;
  /** Per instance, or the same for all. */
  readonly environment?: Record<string, string> | Record<string, string>[];
  readonly limits?: Partial<SessionLimits>;
  /** Whether the last instance has a wire to Redis that can be cut. */
  readonly wired?: boolean;
}

/** A stream that has begun. */
export interface OpenStream {
  readonly client: RawClient;
  /** The bot service's end of it. */
  readonly upstream: Socket;
  /** Sends an event down. */
  event(text?: string): void;
  /** Resolves when it is over: after how many ms from now in which this process was awake, with which code if it ended with one, and whether it is complete. */
  over(): Promise<{ afterMs: number; code: string | undefined; complete: boolean }>;
}

export interface Instances {
  readonly relays: readonly TestRelay[];
  readonly upstream: RawUpstream;
  readonly redis: RedisServer | undefined;
  readonly wire: RedisProxy | undefined;
  /** Opens a stream at the instance with the number `at`; resolves once its first event has come. */
  stream(at: number, cookie: string): Promise<OpenStream>;
  get(at: number, path: string, cookie?: string): Promise<Answer>;
  post(at: number, path: string, cookie: string): Promise<Answer>;
  close(): Promise<void>;
}

/** Relays in this process before one bot service, whose streams begin and then do what the test says. */
export async function startInstances(options: InstancesOptions): Promise<Instances> {
  const { count, shared, environment = {}, limits, wired } = options;
  const begun: Socket[] = [];
  const upstream = await startRawUpstream((socket) => {
    begun.push(socket);
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: begun\n\n')]));
  });
  const redis = shared ? await startRedis() : undefined;
  const wire = redis && wired ? await startRedisProxy(redis.url) : undefined;
  const relays: TestRelay[] = [];
  for (let at = 0; at < count; at += 1) {
    const own = Array.isArray(environment) ? environment[at] : environment;
    const way = (at === count - 1 ? wire : undefined) ?? redis;
    relays.push(await startRelay(upstream.url, { ...own, ...(way && { REDIS_URL: way.url }) }, limits));
  }
  const clients: RawClient[] = [];
  const portOf = (at: number) => (relays[at] as TestRelay).port;
  const ask = (at: number, path: string, method: string, cookie?: string) =>
    call(portOf(at), path, { method, headers: cookie === undefined ? {} : { Cookie: cookie } });
  return {
    relays,
    upstream,
    redis,
    wire,
    async stream(at, cookie) {
      const client = rawClient(portOf(at), rawMessage({ cookie, headers: ['Connection: close'] }));
      clients.push(client);
      await client.waitFor('data: begun\n\n');
      return openStream(client, begun.at(-1) as Socket);
    },
    get: (at, path, cookie) => ask(at, path, 'GET', cookie),
    post: (at, path, cookie) => ask(at, path, 'POST', cookie),
    async close() {
      for (const { socket } of clients) socket.destroy();
      for (const relay of relays) await relay.close();
      await upstream.close();
      wire?.close();
      await redis?.stop();
    },
  };
}

function openStream(client: RawClient, upstream: Socket): OpenStream {
  return {
    client,
    upstream,
    event: (text = 'data: more\n\n') => void upstream.write(chunk(text)),
    async over() {
      const awakeMs = countAwakeMs();
      await client.closed;
      const afterMs = awakeMs();
      const { body, complete } = dechunk(client.text());
      const code = /event: error\ndata: .*"code":"([a-z_]+)"/.exec(body)?.[1];
      return { afterMs, code, complete };
    },
  };
}
