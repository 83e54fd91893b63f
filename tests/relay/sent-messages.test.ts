import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../support/call.ts';
import { type Pair, plainAnswer, startPair, until } from '../support/pair.ts';
import type { RawClient } from '../support/raw-client.ts';
import { CANARY } from '../support/relay.ts';

let pair: Pair;
afterEach(() => pair.close());

/** Sends a message; resolves once it is where the bot service has seen it. */
async function sent(answer: (socket: Socket) => void = () => {}, environment: Record<string, string> = {}) {
  pair = await startPair(answer, environment);
  const arrived = pair.upstream.nextRequest();
  const client = pair.ask({ headers: ['Connection: close'] });
  await arrived;
  return client;
}

/** The answer is one that no load balancer and no client takes for an invitation to send the message again. */
async function expectLost(client: RawClient, cause: string): Promise<void> {
  await client.closed;
  const answer = parseAnswer(client.text());
  expectProblem(answer, 502, 'answer_lost');
  expect(answer.headers['retry-after']).toBeUndefined();
  expect(pair.upstream.requests).toHaveLength(1);
  expect(await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost')).toMatchObject({
    status: 502,
    cause,
  });
}

describe('a message that has gone to the bot service', () => {
  test('is answered 502 when the relay shuts down before its answer begins', async () => {
    const client = await sent();
    await pair.relay.close();
    pair.relay.close = async () => {};
    await expectLost(client, 'draining');
  });

  test('is answered 502 when its session ends before its answer begins', async () => {
    const client = await sent();
    const headers = { Cookie: pair.cookie };
    expect((await call(pair.relay.port, '/auth/logout', { method: 'POST', headers })).status).toBe(204);
    await expectLost(client, 'session_ended');
  });

  test.each([
    ['half of the head of a stream', 'HTTP/1.1 200 OK\r\nContent-Type: text/ev'],
    ['half of a refusal', 'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{'],
  ])('is answered 502 when %s has come by then', async (_what, bytes) => {
    const client = await sent((socket) => socket.write(bytes));
    await new Promise((resolve) => setTimeout(resolve, 100));
    pair.relay.open.endAll(new Problem('draining', 'Gone.', { retryAfter: 1 }));
    await expectLost(client, 'draining');
  });

  test('keeps the 504 of a bot service that does not answer', async () => {
    const client = await sent(() => {}, { UPSTREAM_RESPONSE_TIMEOUT_MS: '200' });
    await client.closed;
    expectProblem(parseAnswer(client.text()), 504, 'upstream_timeout');
  });
});

describe('a message that the bot service has refused', () => {
  test.each([
    ['429', { RATE_MAX_WAIT_MS: '9000' }, ['Retry-After: 5']],
    [
      '401',
      {
        RATE_LIMIT: '1',
        RATE_WINDOW_MS: '9000',
        RATE_MAX_WAIT_MS: '9000',
        UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
      },
      [],
    ],
  ])('with %s may be sent again when the relay shuts down', async (status, environment, headers) => {
    const client = await sent((socket) => socket.write(plainAnswer(`${status} No`, headers)), environment);
    await until(() => pair.upstream.sockets[0]?.destroyed === true);
    pair.relay.open.endAll(new Problem('draining', 'Gone.'));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 503, 'draining');
    expect(pair.upstream.requests).toHaveLength(1);
  });
});
