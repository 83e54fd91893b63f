import { afterEach, expect, test } from '@jest/globals';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { describeWithRedis, startRedis, stopRedis } from '../../harness/redis/redis.ts';
import { OTHER_USER } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../../harness/service/raw-upstream.ts';

const BLOB = operationAt('POST blob');
let pair: RelayAndUpstream;
afterEach(() => pair.close());

const start = async (environment: Record<string, string>) => {
  pair = await startRelayAndUpstream(
    (socket, { requestLine }) =>
      void socket.write(
        requestLine.includes('/blob ')
          ? jsonAnswer('200 OK', { data: [{ blobId: 'b1' }] })
          : wholeStream('data: {}\n\n'),
      ),
    environment,
  );
};
const message = (Cookie: string, channel: string, blobIds: readonly string[]) =>
  call(pair.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
    method: 'POST',
    headers: { Cookie, 'Content-Type': 'application/json' },
    body: JSON.stringify({ customChannelId: channel, blobIds }),
  });

test.each(['scoped', 'shared'])(
  'with CHANNELS=%s, a message names files of its own user and conversation only',
  async (CHANNELS) => {
    await start({ OPERATIONS: 'message,files', CHANNELS });
    const other = await pair.relay.signIn(OTHER_USER);
    expect((await ask(pair, BLOB, { channel: 'c1' })).status).toBe(200);
    expect((await message(pair.cookie, 'c1', ['b1'])).status).toBe(200);
    const sent = pair.upstream.requests.length;
    expectProblem(await message(pair.cookie, 'c2', ['b1']), 403, 'not_your_conversation');
    expectProblem(await message(pair.cookie, 'c1', ['b1', 'b2']), 403, 'not_your_conversation');
    expectProblem(await message(other, 'c1', ['b1']), 403, 'not_your_conversation');
    expect(pair.upstream.requests).toHaveLength(sent);
  },
);

describeWithRedis('with Redis', () => {
  test('an upload whose id cannot be remembered is not answered as if it had not been sent', async () => {
    const redis = await startRedis();
    pair = await startRelayAndUpstream(
      (socket) => {
        redis.pause();
        socket.write(jsonAnswer('200 OK', { blobId: 'b1' }));
      },
      { OPERATIONS: 'message,files', REDIS_URL: redis.url },
    );
    const answer = await ask(pair, BLOB);
    redis.resume();
    expectProblem(answer, 502, 'answer_lost', { retryable: false, maybeStarted: true });
    expect(await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost')).toMatchObject({
      cause: 'session_store_unavailable',
    });
    stopRedis();
  });
});

test('a message names any file where uploads are off', async () => {
  await start({ OPERATIONS: 'message' });
  expect((await message(pair.cookie, 'c1', ['b9'])).status).toBe(200);
});

test('GET metadata is the JSON of the service, and names no conversation', async () => {
  const body = { annotations: { n: 1 } };
  pair = await startRelayAndUpstream((socket) => void socket.write(jsonAnswer('200 OK', body)), {
    OPERATIONS: 'message,metadata',
  });
  const answer = await ask(pair, {
    ...operationAt('GET metadata'),
    path: 'metadata?custom_channel_id=c1&x=y',
  });
  expect([answer.status, answer.body]).toEqual([200, JSON.stringify(body)]);
  expect(pair.upstream.requests[0]?.requestLine).toBe('GET /ns/acme/bot-provider/helper/metadata HTTP/1.1');
});
