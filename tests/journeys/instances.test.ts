import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { hashPassword } from '../../src/authenticate/password/password-hash.ts';
import { call } from '../support/call.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from '../support/process.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, USER } from '../support/relay.ts';
import { idOf } from '../support/sessions.ts';

const users = { users: [{ name: USER.name, hash: await hashPassword(USER.password) }] };

let upstream: RawUpstream;
const clients: RawClient[] = [];
const secrets: string[] = [];
beforeEach(async () => {
  upstream = await startRawUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
  );
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.socket.destroy();
  await stopProcesses(secrets.splice(0));
  await upstream.close();
  stopRedis();
});

interface Instance {
  readonly relay: RelayProcess;
  readonly port: number;
}

async function startInstance(environment: Record<string, string>): Promise<Instance> {
  const relay = startProcess({
    folder: freshFolder({ 'users.json': JSON.stringify(users) }),
    environment: {
      ...inFrontOf(upstream.url),
      ...environment,
    },
  });
  return { relay, port: await relay.listening() };
}

async function startReady(redis: RedisServer): Promise<Instance> {
  const instance = await startInstance({ REDIS_URL: redis.url });
  while ((await readiness(instance.port)).status !== 200) await sleep(20);
  return instance;
}

const readiness = (port: number) => call(port, '/readyz');
const post = (port: number, path: string, cookie: string) =>
  call(port, path, { method: 'POST', headers: { Cookie: cookie } });

async function signIn(port: number): Promise<string> {
  const cookie = await signInAt(port, USER.name, USER.password);
  // Neither the cookie nor the id in it may show in anything that is printed.
  secrets.push(cookie.slice(cookie.indexOf('=') + 1), idOf(cookie));
  return cookie;
}

async function stream(port: number, cookie: string): Promise<RawClient> {
  const client = rawClient(port, rawMessage({ cookie, body: MESSAGE, headers: ['Connection: close'] }));
  clients.push(client);
  await client.waitFor('data: 1\n\n');
  return client;
}

describeWithRedis('two processes with one Redis', () => {
  test('lose only the streams of the one that is killed; sessions and budget go on (O3)', async () => {
    const redis = await startRedis();
    const [one, two] = await Promise.all([startReady(redis), startReady(redis)]);
    const cookie = await signIn(one.port);
    const lost = await stream(one.port, cookie);
    const kept = await stream(two.port, cookie);
    one.relay.signal('SIGKILL');
    await lost.closed;
    expect(dechunk(lost.text())).toMatchObject({ body: 'data: 1\n\n', complete: false });

    expect((await call(two.port, '/auth/session', { headers: { Cookie: cookie } })).status).toBe(200);
    upstream.sockets[1]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    await kept.closed;
    expect(dechunk(kept.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    const next = await stream(two.port, cookie);
    expect((await post(two.port, '/auth/logout-all', cookie)).status).toBe(204);
    await next.closed;
    expect(next.text()).toContain('"code":"session_ended"');
  });

  test('end a stream of the one at a logout at the other (G7)', async () => {
    const redis = await startRedis();
    const [one, two] = await Promise.all([startReady(redis), startReady(redis)]);
    const cookie = await signIn(one.port);
    const open = await stream(two.port, cookie);
    const from = performance.now();
    expect((await post(one.port, '/auth/logout', cookie)).status).toBe(204);
    await open.closed;
    expect(performance.now() - from).toBeLessThan(2000);
    expect(open.text()).toContain('"code":"session_ended"');
    await two.relay.waitFor(/"outcome":"session_ended"/);
  });
});

describeWithRedis('a process with Redis', () => {
  test.each([
    ['is there', false],
    ['is gone', true],
  ])('stops in order while Redis %s: streams first, then exit 0', async (_how, gone) => {
    const redis = await startRedis();
    const { relay, port } = await startReady(redis);
    const client = await stream(port, await signIn(port));
    if (gone) {
      await redis.stop();
      await relay.waitFor(/"msg":"redis lost"/);
    }
    relay.signal('SIGTERM');
    await relay.waitFor(/"msg":"shutting down"/);
    upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(relay.stderr()).toBe('');
  });

  test('listens before Redis is there, lives, and is ready once it is (O8)', async () => {
    const redis = await startRedis();
    await redis.stop();
    const { port } = await startInstance({ REDIS_URL: redis.url });
    const { status, body } = await readiness(port);
    expect([status, JSON.parse(body)]).toEqual([
      503,
      { status: 'not ready', checks: { accepting: 'ok', redis: 'failed' } },
    ]);
    expect((await call(port, '/healthz')).status).toBe(200);
    await redis.start();
    while ((await readiness(port)).status !== 200) await sleep(20);
  });
});

describe('a process in production', () => {
  const PRODUCTION = { NODE_ENV: 'production', PUBLIC_URL: 'https://chat.example.com' };
  const WARNING = /"level":"warn".*REDIS_URL is not set/;

  test('without Redis warns that it must be the only one', async () => {
    await (await startInstance(PRODUCTION)).relay.waitFor(WARNING);
    const other = await startInstance({ PUBLIC_URL: PRODUCTION.PUBLIC_URL });
    const told = await startInstance({ ...PRODUCTION, REDIS_URL: 'redis://127.0.0.1:9' });
    for (const { relay, port } of [other, told]) {
      // It answers only once it has said all that it says at its start.
      await call(port, '/auth/session');
      await relay.waitFor(/"msg":"request"/);
      expect(relay.stdout()).not.toMatch(WARNING);
    }
  });
});
