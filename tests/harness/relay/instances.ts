import type { Socket } from 'node:net';
import { type Answer, call } from '../clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { type FaultProxy, faultProxy } from '../faults/fault-proxy.ts';
import { type RedisServer, startRedis } from '../redis/redis.ts';
import { chunk, type RawUpstream, STREAM_HEAD, startRawUpstream } from '../service/raw-upstream.ts';
import { CANARY, startRelay, type TestLimits, type TestRelay } from './relay.ts';

export interface InstancesOptions {
  readonly count: number;
  /** Whether they share a Redis of their own. */
  readonly shared: boolean;
  /** Per instance, or the same for all. */
  readonly environment?: Record<string, string> | Record<string, string>[];
  readonly limits?: TestLimits;
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
  /** Resolves when it is over: with which code if it ended with one, and whether it is complete. */
  over(): Promise<{ code: string | undefined; complete: boolean }>;
}

export interface Instances {
  readonly relays: readonly TestRelay[];
  readonly upstream: RawUpstream;
  readonly redis: RedisServer | undefined;
  readonly wire: FaultProxy | undefined;
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
  const wire = redis && wired ? await faultProxy(redis.url) : undefined;
  const relays: TestRelay[] = [];
  for (let at = 0; at < count; at += 1) {
    const own = Array.isArray(environment) ? environment[at] : environment;
    const way = (at === count - 1 ? wire : undefined) ?? redis;
    relays.push(await startRelay(upstream.url, { ...own, ...(way && { REDIS_URL: way.url }) }, limits));
  }
  const clients: RawClient[] = [];
  /** Each stream is that of another message: the same bytes would join its run. */
  const nextBody = () => JSON.stringify({ customChannelId: 'c1', text: `${CANARY.text} ${clients.length}` });
  const portOf = (at: number) => (relays[at] as TestRelay).port;
  const ask = (at: number, path: string, method: string, cookie?: string) =>
    call(portOf(at), path, { method, headers: cookie === undefined ? {} : { Cookie: cookie } });
  return {
    relays,
    upstream,
    redis,
    wire,
    async stream(at, cookie) {
      const client = rawClient(
        portOf(at),
        rawMessage({ cookie, body: nextBody(), headers: ['Connection: close'] }),
      );
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
      await client.closed;
      const { body, complete } = dechunk(client.text());
      const code = /event: error\ndata: .*"code":"([a-z_]+)"/.exec(body)?.[1];
      return { code, complete };
    },
  };
}
