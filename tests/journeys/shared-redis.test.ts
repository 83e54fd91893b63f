import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from '../harness/relay/process.ts';
import { USER } from '../harness/relay/relay.ts';
import { type RawUpstream, STREAM_HEAD, startRawUpstream } from '../harness/service/raw-upstream.ts';

interface Instance {
  readonly relay: RelayProcess;
  readonly port: number;
}

let redis: RedisServer;
let upstream: RawUpstream;
let one: Instance;
let two: Instance;
let cookie: string;
const clients: RawClient[] = [];

/** Starts a relay process with Redis and a file of one user. */
async function start(): Promise<Instance> {
  const users = { users: [{ name: USER.name, hash: cheapHash(USER.password) }] };
  const relay = startProcess({
    folder: freshFolder({ 'users.json': JSON.stringify(users) }),
    environment: {
      ...inFrontOf(upstream.url),
      REDIS_URL: redis.url,
      MAX_STREAMS_PER_USER: '2',
      LOGIN_MAX_FAILURES: '2',
      SHUTDOWN_GRACE_MS: '0',
    },
  });
  const port = await relay.listening();
  await relay.waitFor(/"msg":"redis ready"/);
  return { relay, port };
}

/** Sends a message of its own; resolves with the status of its answer. */
async function open({ port }: Instance): Promise<number> {
  const body = JSON.stringify({ text: `message ${clients.length}` });
  const client = rawClient(port, rawMessage({ cookie, body }));
  clients.push(client);
  await client.waitFor('\r\n\r\n');
  return parseAnswer(client.text()).status;
}
const places = async () => (await redis.command('KEYS', 'bot-relay:streams:*')) as string[];

describeWithRedis('a relay process with a Redis', () => {
  // The tests use one instance after the other, with one session.
  beforeAll(async () => {
    redis = await startRedis();
    upstream = await startRawUpstream((socket) => socket.write(STREAM_HEAD));
    [one, two] = await Promise.all([start(), start()]);
    cookie = await signInAt(one.port, USER.name, USER.password);
  });
  afterAll(async () => {
    for (const { socket } of clients.splice(0)) socket.destroy();
    await stopProcesses([cookie.slice(cookie.indexOf('=') + 1)]);
    await upstream.close();
    stopRedis();
  });

  test('keeps its counts and stream places in Redis, and releases the places when it stops', async () => {
    expect([await open(one), await open(one), await open(one)]).toEqual([200, 200, 429]);
    const [key = ''] = await places();
    expect(await redis.command('ZCARD', key)).toBe(2);
    const counts = (await redis.command('KEYS', 'bot-relay:limit:*')) as string[];
    expect(counts).toHaveLength(2);
    one.relay.signal('SIGTERM');
    expect(await one.relay.exited).toEqual({ code: 0, signal: null });
    expect(await places()).toEqual([]);
  });

  test('counts failed sign-ins as LOGIN_MAX_FAILURES says', async () => {
    const wrong = () => signInAt(two.port, USER.name, 'wrong-password');
    await expect(wrong()).rejects.toThrow('401');
    await expect(wrong()).rejects.toThrow('401');
    await expect(signInAt(two.port, USER.name, USER.password)).rejects.toThrow('429');
  });

  test('leaves stream places that run out by themselves when it is killed', async () => {
    expect(await open(two)).toBe(200);
    two.relay.signal('SIGKILL');
    await two.relay.exited;
    const [key = ''] = await places();
    // It says -1 of a key that stays.
    expect(await redis.command('PTTL', key)).toBeGreaterThan(0);
  });
});
