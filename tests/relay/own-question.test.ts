import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Answer, expectProblem } from '../harness/clients/call.ts';
import { ask, operationAt } from '../harness/clients/operation-requests.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { holdTimers } from '../harness/clock/hold-timers.ts';
import { CANARY } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import { isQuestion, launched } from '../harness/service/launched-sandboxes.ts';
import type { RawRequest } from '../harness/service/raw-upstream.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair?.close();
});

/** Starts a service that answers the relay's own questions with `tell`, and everything else with 200. */
async function start(
  tell: (socket: Socket, request: RawRequest) => void,
  environment: Record<string, string> = {},
): Promise<void> {
  pair = await startRelayAndUpstream(
    (socket, request) => {
      if (isQuestion(request)) tell(socket, request);
      else socket.write(jsonAnswer('200 OK', { entries: [] }));
    },
    { OPERATIONS: 'sandbox', ...environment },
  );
}
const use = (): Promise<Answer> => ask(pair, LIST);
const expectNotPassed = () =>
  expect(pair.upstream.requests.filter((request) => !isQuestion(request))).toEqual([]);

describe('a question of the relay itself', () => {
  test.each([
    ['400', jsonAnswer('400 Bad Request', {})],
    ['302', plainAnswer('302 Found', ['Location: /login'])],
    ['404 in HTML', plainAnswer('404 Not Found', ['Content-Type: text/html'], '<h1>Hello</h1>')],
    ['404 with broken JSON', plainAnswer('404 Not Found', ['Content-Type: application/json'], '{')],
    ['404 in an encoding', jsonAnswer('404 Not Found', {}, ['Content-Encoding: gzip'])],
    ['200 in HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<h1>Hello</h1>')],
    ['no HTTP', 'nonsense\r\n\r\n'],
  ])('that is answered with %s lets nothing pass', async (_what, answer) => {
    await start((socket) => void socket.write(answer));
    expectProblem(await use(), 502, 'upstream_bad_response', { retryable: false });
    expectNotPassed();
  });

  test('passes the time on that the service asks for', async () => {
    await start((socket) => void socket.write(jsonAnswer('429 Busy', {}, ['Retry-After: 7'])));
    const refused = await use();
    expectProblem(refused, 429, 'upstream_rate_limited', { retryable: 'new message' });
    expect(refused.headers['retry-after']).toBe('7');
    expectNotPassed();
  });

  test('whose connection breaks in its answer lets nothing pass, and another try can help', async () => {
    const half = 'HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}';
    await start((socket) => void socket.end(half));
    expectProblem(await use(), 502, 'upstream_unreachable', { retryable: 'new message' });
    expectNotPassed();
  });

  test('that is not answered in time is a 504, and another try can help', async () => {
    const timeIsOver = holdTimers(87_654);
    const asked = Promise.withResolvers<Socket>();
    await start(
      (socket) => {
        socket.write(
          'HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{',
        );
        asked.resolve(socket);
      },
      { UPSTREAM_RESPONSE_TIMEOUT_MS: '87654' },
    );
    const answer = use();
    const socket = await asked.promise;
    timeIsOver();
    expectProblem(await answer, 504, 'upstream_timeout', { retryable: 'new message' });
    await until(() => socket.destroyed);
    expectNotPassed();
  });

  test('is closed if its answer is larger than metadata can be', async () => {
    await start((socket) => {
      socket.write('HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n"');
      const more = setInterval(() => socket.write('x'.repeat(1 << 18)), 1);
      socket.once('close', () => clearInterval(more));
    });
    expectProblem(await use(), 502, 'upstream_bad_response');
    expectNotPassed();
  });

  test('tries the keys in their order, and the request follows with the one that worked', async () => {
    const keys = [CANARY.key, `${CANARY.key}-2`];
    await start(
      (socket, request) =>
        void socket.write(
          request.all('x-api-key')[0] === keys[0] ? plainAnswer('401 Unauthorized', []) : launched('one'),
        ),
      { UPSTREAM_API_KEYS: keys.join() },
    );
    expect((await use()).status).toBe(200);
    const sent = pair.upstream.requests.map((request) => request.all('x-api-key')[0]);
    expect(sent).toEqual([keys[0], keys[1], keys[1]]);
  });

  test('has the budget of its path', async () => {
    const budget = { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' };
    await start((socket) => void socket.end(launched('two')), budget);
    expectProblem(await use(), 403, 'not_your_conversation');
    expectProblem(await use(), 429, 'rate_limited', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('names the user who is signed in', async () => {
    await start((socket) => void socket.end(launched('one')), { USER_HEADER: 'X-User' });
    expect((await use()).status).toBe(200);
    expect(pair.upstream.requests.map((request) => request.all('x-user'))).toEqual([['ada'], ['ada']]);
  });

  test('is answered by any status before the last one only', async () => {
    await start((socket) => void socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${launched('one')}`));
    expect((await use()).status).toBe(200);
  });
});
