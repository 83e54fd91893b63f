import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { countAwakeMs } from '../support/awake.ts';
import { type Answer, expectProblem } from '../support/call.ts';
import {
  type ChannelService,
  operate,
  type Sent,
  say,
  startChannelService,
  toTheQuestion,
} from '../support/owned.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { jsonAnswer } from '../support/suspend.ts';

const METADATA = 'GET channel/metadata';

describeWithRedis('with CHANNELS=owned and several instances', () => {
  let service: ChannelService;
  let elsewhere: ChannelService;
  let redis: RedisServer;
  const relays: TestRelay[] = [];
  let ada: Sent;
  let bob: Sent;

  async function start(environment: Record<string, string> = {}, url = service.url) {
    const relay = await startRelay(url, { CHANNELS: 'owned', REDIS_URL: redis.url, ...environment });
    relays.push(relay);
    return relay;
  }

  beforeAll(async () => {
    [service, elsewhere, redis] = await Promise.all([
      startChannelService(),
      startChannelService(),
      startRedis(),
    ]);
    const [one, two] = [await start(), await start()];
    ada = { port: one.port, cookie: await one.signIn() };
    bob = { port: two.port, cookie: await two.signIn(OTHER_USER) };
  });
  afterAll(async () => {
    await Promise.all(relays.map((relay) => relay.close()));
    await Promise.all([service.close(), elsewhere.close()]);
    stopRedis();
  });

  test('an owner is known on each of them', async () => {
    expect((await say(ada, 'known')).status).toBe(200);
    expect((await operate({ ...ada, port: bob.port }, METADATA, 'known')).status).toBe(200);
    expectProblem(await say(bob, 'known'), 403, 'not_your_conversation');
    expectProblem(await operate(bob, METADATA, 'KNOWN'), 403, 'not_your_conversation');
  });

  test('of two users who begin a conversation at once, exactly one has it', async () => {
    for (const id of ['race-1', 'race-2', 'race-3', 'race-4']) {
      const held: (() => void)[] = [];
      service.answering = toTheQuestion((socket) => {
        held.push(() => socket.write(jsonAnswer('404 Not Found', {})));
      });
      const answers = [say(ada, id), say(bob, id)];
      await until(() => held.length === 2);
      for (const release of held) release();
      const [first, second] = (await Promise.all(answers)) as [Answer, Answer];
      expect([first.status, second.status].sort()).toEqual([200, 403]);
      service.answering = () => false;
      expect((await say(first.status === 200 ? ada : bob, id)).status).toBe(200);
    }
  });

  test('a message that names files of others neither claims its conversation nor asks for it', async () => {
    const relay = await start({ OPERATIONS: 'message,files' });
    service.requests.length = 0;
    for (const blobIds of [['foreign'], 'foreign']) {
      const body = JSON.stringify({ customChannelId: 'with-files', text: 'hi', blobIds });
      const { status } = await say({ ...ada, port: relay.port }, 'with-files', body);
      expect(status).toBe(blobIds === 'foreign' ? 400 : 403);
    }
    expect(service.asked()).toEqual([]);
    expect((await say(bob, 'with-files')).status).toBe(200);
  });

  test('a claim is kept if its instance stops before the message has left', async () => {
    const stopping = await start();
    const { reserve } = stopping.budgets;
    const [claimed, stopped] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    jest.spyOn(stopping.budgets, 'reserve').mockImplementation(async (request) => {
      // The question about the conversation has the budget of its own path.
      if (request.endpoint === 'acme/helper') {
        claimed.resolve();
        await stopped.promise;
      }
      return reserve(request);
    });
    service.requests.length = 0;
    const waiting = say({ ...ada, port: stopping.port }, 'claimed');
    await claimed.promise;
    stopping.open.endAll(new Problem('draining', 'as at the end of a shutdown'));
    stopped.resolve();
    expectProblem(await waiting, 503, 'draining', { retryable: 'new message' });
    await stopping.close();
    expect(service.asked()).toEqual([METADATA]);
    expectProblem(await say(bob, 'claimed'), 403, 'not_your_conversation');
    // The service does not have it, but its owner needs no second question.
    expect((await say(ada, 'claimed')).status).toBe(200);
    expect(service.asked()).toEqual([METADATA, 'POST message/sse']);
  });

  test('a claim whose answer is lost is that of its user, and nobody else takes it meanwhile', async () => {
    service.answering = toTheQuestion((socket) => {
      redis.pause();
      socket.write(jsonAnswer('404 Not Found', {}));
    });
    service.requests.length = 0;
    try {
      expectProblem(await say(ada, 'lost'), 503, 'session_store_unavailable', { retryable: 'new message' });
    } finally {
      redis.resume();
      service.answering = () => false;
    }
    expect(service.asked()).toEqual([METADATA]);
    expect((await say(ada, 'lost')).status).toBe(200);
    expectProblem(await say(bob, 'lost'), 403, 'not_your_conversation');
  });

  test('an id has another owner at another service and in another realm', async () => {
    await say(ada, 'mine');
    const other = await start({}, elsewhere.url);
    const cookie = await other.signIn(OTHER_USER);
    expect((await say({ port: other.port, cookie }, 'mine')).status).toBe(200);
    // One service, written without and with a slash at its end.
    const [short, long] = [await start({}, `${service.url}/base`), await start({}, `${service.url}/base/`)];
    expect((await say({ ...ada, port: short.port }, 'below')).status).toBe(200);
    service.requests.length = 0;
    expect((await say({ ...ada, port: long.port }, 'below')).status).toBe(200);
    expect(service.asked()).toEqual(['POST message/sse']);
    const renamed = await start({ CHANNEL_REALM: 'staff' });
    expectProblem(
      await say({ port: renamed.port, cookie: ada.cookie }, 'mine'),
      403,
      'not_your_conversation',
    );
  });

  test('Redis holds neither an id nor a name of a user', async () => {
    await say(ada, 'secret-id');
    const keys = (await redis.command('KEYS', 'bot-relay:channel-owner:*')) as string[];
    expect(keys.length).toBeGreaterThan(0);
    const values = await Promise.all(keys.map((key) => redis.command('HGETALL', key)));
    expect(JSON.stringify([keys, values])).not.toMatch(/secret-id|ada|acme|helper/);
    for (const key of keys) expect(await redis.command('TTL', key)).toBe(-1);
  });

  test('a conversation is refused with 503 within a second while Redis does not answer', async () => {
    await say(ada, 'paused');
    service.requests.length = 0;
    redis.pause();
    try {
      const awakeMs = countAwakeMs();
      const answers = await Promise.all([
        say(ada, 'paused'),
        operate(ada, METADATA, 'paused'),
        say(ada, 'new'),
      ]);
      const ms = awakeMs();
      for (const answer of answers)
        expectProblem(answer, 503, 'session_store_unavailable', { retryable: 'new message' });
      expect(ms).toBeLessThan(2_000);
      expect(service.asked()).toEqual([]);
    } finally {
      redis.resume();
    }
  });
});
