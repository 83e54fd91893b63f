import type { Socket } from 'node:net';
import { call } from '../clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../clients/raw-client.ts';
import { faultProxy } from '../faults/fault-proxy.ts';
import { startRedis } from '../redis/redis.ts';
import { chunk, STREAM_HEAD, startRawUpstream } from '../service/raw-upstream.ts';
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

export type Instances = Awaited<ReturnType<typeof startInstances>>;
export type OpenStream = ReturnType<typeof openStream>;

/** Relays in this process before one bot service, whose streams begin and then do what the test says. */
export async function startInstances(options: InstancesOptions) {
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
    /** Opens a stream at the instance with the number `at`; resolves once its first event has come. */
    async stream(at: number, cookie: string) {
      const client = rawClient(
        portOf(at),
        rawMessage({ cookie, body: nextBody(), headers: ['Connection: close'] }),
      );
      clients.push(client);
      await client.waitFor('data: begun\n\n');
      return openStream(client, begun.at(-1) as Socket);
    },
    get: (at: number, path: string, cookie?: string) => ask(at, path, 'GET', cookie),
    post: (at: number, path: string, cookie: string) => ask(at, path, 'POST', cookie),
    async close() {
      for (const { socket } of clients) socket.destroy();
      for (const relay of relays) await relay.close();
      await upstream.close();
      wire?.close();
      await redis?.stop();
    },
  };
}

/** A stream that has begun; `upstream` is the bot service's end of it. */
function openStream(client: RawClient, upstream: Socket) {
  return {
    client,
    upstream,
    /** Sends an event down. */
    event: (text = 'data: more\n\n') => void upstream.write(chunk(text)),
    /** Resolves when it is over: with which code if it ended with one, and whether it is complete. */
    async over() {
      await client.closed;
      const { body, complete } = dechunk(client.text());
      const code = /event: error\ndata: .*"code":"([a-z_]+)"/.exec(body)?.[1];
      return { code, complete };
    },
  };
}
