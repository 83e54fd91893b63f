import dns from 'node:dns';
import { afterEach, expect, jest, test } from '@jest/globals';
import { advanceClocks } from '../support/advance-clocks.ts';
import { messageBody, problemOf } from '../support/joining.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';

jest.setTimeout(30_000);

let upstream: RawUpstream;
let redis: RedisServer;
let relay: TestRelay;
afterEach(async () => {
  jest.restoreAllMocks();
  await relay.close();
  await upstream.close();
  await redis.stop();
});

type Found = (error: null, address: unknown, family?: number) => void;

describeWithRedis('an instance that is held up while it connects to the service', () => {
  test('does not send a message whose run another one has taken meanwhile', async () => {
    upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
    redis = await startRedis();
    const url = upstream.url.replace('127.0.0.1', 'localhost');
    relay = await startRelay(url, { JOIN: 'on', REDIS_URL: redis.url });
    const cookie = await relay.signIn();
    const asked = Promise.withResolvers<() => void>();
    const lookup = (_name: string, options: { all?: boolean }, found: Found) =>
      asked.resolve(() =>
        options.all ? found(null, [{ address: '127.0.0.1', family: 4 }]) : found(null, '127.0.0.1', 4),
      );
    jest.spyOn(dns, 'lookup').mockImplementation(lookup as typeof dns.lookup);
    const body = messageBody();
    const client = rawClient(relay.port, rawMessage({ cookie, body, headers: ['Connection: close'] }));
    const connect = await asked.promise;
    jest.restoreAllMocks();
    const [key = ''] = (await redis.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    await redis.command('HSET', key, 'token', "another instance's", 'lease', '0');
    // As if the process had been stopped.
    advanceClocks({ monotonic: 4_500 });
    connect();
    expect(await problemOf(client)).toMatchObject({ code: 'answer_lost' });
    expect(upstream.requests).toHaveLength(0);
  });
});
