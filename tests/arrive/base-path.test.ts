import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    BASE_PATH: '/chat-api',
  });
});
afterAll(() => pair.close());

describe('BASE_PATH', () => {
  test('is a prefix of the path of a message, and is not sent upstream', async () => {
    expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: 1\n\n');
    expect(pair.upstream.requests[0]?.requestLine).toBe(`POST ${BOT_PATH} HTTP/1.1`);
  });

  test.each(['/healthz', '/readyz'])('is a prefix of the probe %s', async (path) => {
    expect(await call(pair.relay.port, `/chat-api${path}`)).toMatchObject({ status: 200 });
    expectProblem(await call(pair.relay.port, path), 404, 'not_found');
  });

  test('is a prefix of the session routes', async () => {
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
  ])('makes %s %s answer 404', async (method, path) => {
    expectProblem(
      await call(pair.relay.port, path, { method, headers: { Cookie: pair.cookie } }),
      404,
      'not_found',
    );
  });
});
