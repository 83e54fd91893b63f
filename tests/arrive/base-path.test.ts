import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../support/call.ts';
import { type Pair, startPair } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { BOT_PATH } from '../support/relay.ts';

let pair: Pair;
beforeAll(async () => {
  pair = await startPair((socket) => socket.write(wholeStream('data: 1\n\n')), { BASE_PATH: '/chat-api' });
});
afterAll(() => pair.close());

describe('BASE_PATH', () => {
  test('stands before the message, and does not go upstream', async () => {
    expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: 1\n\n');
    expect(pair.upstream.requests[0]?.requestLine).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test.each(['/healthz', '/readyz'])('stands before the probe %s', async (path) => {
    expect(await call(pair.relay.port, `/chat-api${path}`)).toMatchObject({ status: 200 });
    expectProblem(await call(pair.relay.port, path), 404, 'not_found');
  });

  test('stands before the session routes', async () => {
    expect(
      await call(pair.relay.port, '/chat-api/auth/session', { headers: { Cookie: pair.cookie } }),
    ).toMatchObject({ status: 200 });
    expectProblem(await call(pair.relay.port, '/chat-api/auth/login'), 405, 'method_not_allowed');
  });

  test.each([
    ['GET', '/auth/session'],
    ['POST', '/auth/login'],
    ['POST', '/auth/logout'],
    ['POST', '/auth/logout-all'],
    ['POST', BOT_PATH],
    ['GET', '/chat-api'],
    ['GET', '/chat-api/'],
    ['GET', '/Chat-Api/auth/session'],
    ['GET', '/chat-api/chat-api/auth/session'],
  ])('leaves nothing at %s %s', async (method, path) => {
    expectProblem(
      await call(pair.relay.port, path, { method, headers: { Cookie: pair.cookie } }),
      404,
      'not_found',
    );
  });
});
