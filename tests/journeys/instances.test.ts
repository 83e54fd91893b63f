import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { call, isSignedIn } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
  untilReady,
  usersFile,
} from '../harness/relay/process.ts';
import { BOT_PATH, MESSAGE, USER } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

let upstream: RawUpstream;
let redis: RedisServer;
/** The connections of the messages that have reached the bot service, in order. */
const begun: Socket[] = [];
const clients: RawClient[] = [];
const secrets: string[] = [];
beforeAll(async () => {
  upstream = await startRawUpstream((socket) => {
    begun.push(socket);
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
  });
});
afterAll(async () => {
  for (const client of clients) client.socket.destroy();
  await stopProcesses(secrets);
  await upstream.close();
  stopRedis();
});

interface Instance {
  readonly relay: RelayProcess;
  readonly port: number;
}

async function startInstance(environment: Record<string, string>): Promise<Instance> {
  const relay = startProcess({
    folder: freshFolder({ 'users.json': usersFile() }),
    environment: {
      ...inFrontOf(upstream.url),
      ...environment,
    },
  });
  return { relay, port: await relay.listening() };
}

const readiness = (port: number) => call(port, '/readyz');
const post = (port: number, path: string, cookie: string) =>
  call(port, path, { method: 'POST', headers: { Cookie: cookie } });

async function signIn(port: number): Promise<string> {
  const cookie = await signInAt(port, USER.name, USER.password);
  // Neither the cookie nor its id may be printed.
  secrets.push(cookie.slice(cookie.indexOf('=') + 1), idOf(cookie));
  return cookie;
}

const keysOf = async (what: string) => (await redis.command('KEYS', `bot-relay:${what}:*`)) as string[];

interface Stream {
  readonly client: RawClient;
  /** The second event and the end. */
  finish(): void;
}

/** Sends a message of its own. */
async function stream(port: number, cookie: string): Promise<Stream> {
  const body = JSON.stringify({ ...JSON.parse(MESSAGE), n: clients.length });
  const client = rawClient(port, rawMessage({ cookie, body, headers: ['Connection: close'] }));
  clients.push(client);
  await client.waitFor('data: 1\n\n');
  const service = begun.at(-1) as Socket;
  const finish = () => service.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
  return { client, finish };
}

async function expectWhole({ client }: Stream): Promise<void> {
  await client.closed;
  expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
}

/** Tells an instance to stop while a stream is open. */
async function stopInOrder({ relay }: Instance, open: Stream): Promise<void> {
  relay.signal('SIGTERM');
  await relay.waitFor(/"msg":"shutting down"/);
  open.finish();
  await expectWhole(open);
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(relay.stderr()).toBe('');
}

// Each test leaves the instances to the next one as it needs them.
describeWithRedis('two processes with one Redis', () => {
  let one: Instance;
  let two: Instance;
  beforeAll(async () => {
    redis = await startRedis();
    const limits = { MAX_STREAMS_PER_USER: '2', LOGIN_MAX_FAILURES: '2' };
    const start = () => startInstance({ REDIS_URL: redis.url, ...limits });
    [one, two] = await Promise.all([start(), start()]);
    await Promise.all([untilReady(one.port), untilReady(two.port)]);
  });

  test('count failed sign-ins together, as LOGIN_MAX_FAILURES says', async () => {
    for (const { port } of [one, two]) {
      await expect(signInAt(port, USER.name, 'wrong-password')).rejects.toThrow('401');
    }
    await expect(signInAt(one.port, USER.name, USER.password)).rejects.toThrow('429');
    // The next test signs in.
    await redis.command('FLUSHALL');
  });

  test('end a stream of one when the user signs out at the other', async () => {
    const cookie = await signIn(one.port);
    const open = await stream(two.port, cookie);
    expect((await post(one.port, '/auth/logout', cookie)).status).toBe(204);
    await open.client.closed;
    expect(open.client.text()).toContain('"code":"session_ended"');
    await two.relay.waitFor(/"outcome":"session_ended"/);
  });

  test('lose only the streams of one that is killed; sessions and budget go on', async () => {
    const cookie = await signIn(one.port);
    const { client: lost } = await stream(one.port, cookie);
    const kept = await stream(two.port, cookie);
    const [places = ''] = await keysOf('streams');
    expect(await redis.command('ZCARD', places)).toBe(2);
    const body = JSON.stringify({ text: 'one more' });
    const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
    expect((await call(two.port, BOT_PATH, { method: 'POST', headers, body })).status).toBe(429);
    one.relay.signal('SIGKILL');
    await lost.closed;
    expect(dechunk(lost.text())).toMatchObject({ body: 'data: 1\n\n', complete: false });
    // Its places run out by themselves; Redis says -1 of a key that stays.
    expect(await redis.command('PTTL', places)).toBeGreaterThan(0);

    expect(isSignedIn(await call(two.port, '/auth/session', { headers: { Cookie: cookie } }))).toBe(true);
    kept.finish();
    await expectWhole(kept);
    const { client: next } = await stream(two.port, cookie);
    expect((await post(two.port, '/auth/logout-all', cookie)).status).toBe(204);
    await next.closed;
    expect(next.text()).toContain('"code":"session_ended"');
  });

  test('stop in order while Redis is there: streams first, then exit 0, and their places are free', async () => {
    // The place of a lost stream is still taken.
    await redis.command('DEL', ...(await keysOf('streams')));
    await stopInOrder(two, await stream(two.port, await signIn(two.port)));
    expect(await keysOf('streams')).toEqual([]);
  });
});

describeWithRedis('a process with Redis', () => {
  let instance: Instance;

  test('listens and is alive without Redis, and is ready when Redis answers', async () => {
    await redis.stop();
    instance = await startInstance({ REDIS_URL: redis.url });
    const { port } = instance;
    const { status, body } = await readiness(port);
    expect([status, JSON.parse(body)]).toEqual([
      503,
      { status: 'not ready', checks: { accepting: 'ok', redis: 'failed' } },
    ]);
    expect((await call(port, '/healthz')).status).toBe(200);
    await redis.start();
    await untilReady(port);
  });

  test('stops in order while Redis is gone: streams first, then exit 0', async () => {
    const open = await stream(instance.port, await signIn(instance.port));
    await redis.stop();
    await instance.relay.waitFor(/"msg":"redis lost"/);
    await stopInOrder(instance, open);
  });
});
