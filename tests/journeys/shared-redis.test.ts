import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { parseAnswer } from '../support/call.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from '../support/process.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { type RawUpstream, STREAM_HEAD, startRawUpstream } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { USER } from '../support/relay.ts';

let redis: RedisServer;
let upstream: RawUpstream;
let relay: RelayProcess;
let port: number;
let cookie: string;
const clients: RawClient[] = [];

/** A relay process on a Redis, and a user of its file who is signed in. */
async function start(): Promise<void> {
  redis = await startRedis();
  upstream = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
  const folder = freshFolder();
  const add = startProcess({ folder, args: ['user', 'add', USER.name], input: `${USER.password}\n` });
  await add.exited;
  relay = startProcess({
    folder,
    environment: {
      ...inFrontOf(upstream.url),
      REDIS_URL: redis.url,
      MAX_STREAMS_PER_USER: '2',
      LOGIN_MAX_FAILURES: '2',
      SHUTDOWN_GRACE_MS: '0',
    },
  });
  port = await relay.listening();
  await relay.waitFor(/"msg":"redis ready"/);
  cookie = await signInAt(port, USER.name, USER.password);
}

async function open(): Promise<number> {
  const client = rawClient(port, rawMessage({ cookie }));
  clients.push(client);
  await client.waitFor('\r\n\r\n');
  return parseAnswer(client.text()).status;
}
const places = async () => (await redis.command('KEYS', 'bot-relay:streams:*')) as string[];

describeWithRedis('a relay process with a Redis', () => {
  beforeEach(start);
  afterEach(async () => {
    for (const { socket } of clients.splice(0)) socket.destroy();
    await stopProcesses([cookie.slice(cookie.indexOf('=') + 1)]);
    await upstream.close();
    stopRedis();
  });

  test('keeps its counts and the places of streams there, and gives the places back when it stops', async () => {
    expect([await open(), await open(), await open()]).toEqual([200, 200, 429]);
    const [key = ''] = await places();
    expect(await redis.command('ZCARD', key)).toBe(2);
    const counts = (await redis.command('KEYS', 'bot-relay:limit:*')) as string[];
    expect(counts).toHaveLength(2);
    relay.signal('SIGTERM');
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(await places()).toEqual([]);
  });

  test('leaves places that end by themselves when it is killed (O3)', async () => {
    await open();
    relay.signal('SIGKILL');
    await relay.exited;
    const [key = ''] = await places();
    const left = (await redis.command('PTTL', key)) as number;
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(30_000);
    await sleep(200);
    expect(await redis.command('PTTL', key)).toBeLessThan(left);
  });

  test('counts failed sign-ins as LOGIN_MAX_FAILURES says', async () => {
    const wrong = () => signInAt(port, USER.name, 'wrong-password');
    await expect(wrong()).rejects.toThrow('401');
    await expect(wrong()).rejects.toThrow('401');
    await expect(signInAt(port, USER.name, USER.password)).rejects.toThrow('429');
  });
});
