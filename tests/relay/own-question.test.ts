import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem } from '../support/call.ts';
import {
  type ChannelService,
  htmlAnswer,
  NO_SUCH_CHANNEL,
  operate,
  type Sent,
  say,
  startChannelService,
  toTheQuestion,
} from '../support/owned.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { CANARY, startRelay, type TestRelay } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { jsonAnswer } from '../support/suspend.ts';

const QUESTION = 'GET channel/metadata';
const MESSAGE = 'POST message/sse';

let service: ChannelService;
let relay: TestRelay;
let ada: Sent;
afterEach(async () => {
  await relay?.close();
  await service?.close();
});

async function start(environment: Record<string, string> = {}, path = ''): Promise<void> {
  service = await startChannelService();
  relay = await startRelay(service.url + path, { CHANNELS: 'owned', ...environment });
  ada = { port: relay.port, cookie: await relay.signIn() };
}

/** No claim was made: the next question decides. */
async function expectNotClaimed(): Promise<void> {
  expect(service.asked()).not.toContain(MESSAGE);
  expect((await operate(ada, 'POST message/suspend', 'c1')).status).toBe(403);
  service.answering = () => false;
  expect((await say(ada, 'c1')).status).toBe(200);
}

describe('the question whether a conversation is new', () => {
  test.each([
    ['500 Error', jsonAnswer('500 Error', {}), 502, 'upstream_bad_response', false],
    ['400', jsonAnswer('400 Bad Request', {}), 502, 'upstream_bad_response', false],
    ['302', plainAnswer('302 Found', ['Location: /login']), 502, 'upstream_bad_response', false],
    ['404 in HTML', htmlAnswer('404 Not Found'), 502, 'upstream_bad_response', false],
    ['404 without a body', plainAnswer('404 Not Found', []), 502, 'upstream_bad_response', false],
    [
      '404 with broken JSON',
      plainAnswer('404 Not Found', ['Content-Type: application/json'], '{'),
      ...([502, 'upstream_bad_response', false] as const),
    ],
    [
      '404 in an encoding',
      jsonAnswer('404 Not Found', {}, ['Content-Encoding: gzip']),
      ...([502, 'upstream_bad_response', false] as const),
    ],
    ['200 in HTML', htmlAnswer('200 OK'), 502, 'upstream_bad_response', false],
    ['no HTTP', 'nonsense\r\n\r\n', 502, 'upstream_bad_response', false],
    ['429', jsonAnswer('429 Busy', {}, ['Retry-After: 7']), 429, 'upstream_rate_limited', 'new message'],
  ] as const)('that is answered with %s sends no message and claims nothing', async (...row) => {
    const [, answer, status, code, retryable] = row;
    await start();
    service.answering = toTheQuestion((socket) => void socket.write(answer));
    const refused = await say(ada, 'c1');
    // The message itself has not left, so it cannot have started.
    expectProblem(refused, status, code, { retryable });
    expect(refused.headers['retry-after']).toBe(status === 429 ? '7' : undefined);
    await expectNotClaimed();
  });

  test.each([
    ['before its answer', ''],
    [
      'in its answer',
      'HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}',
    ],
  ])('whose connection breaks %s sends no message, and another try can help', async (_when, text) => {
    await start();
    service.answering = toTheQuestion((socket) => void socket.end(text));
    expectProblem(await say(ada, 'c1'), 502, 'upstream_unreachable', { retryable: 'new message' });
    await expectNotClaimed();
  });

  test('that is not answered in time is a 504, and another try can help', async () => {
    await start({ UPSTREAM_RESPONSE_TIMEOUT_MS: '300' });
    let isClosed = false;
    service.answering = toTheQuestion((socket) => {
      socket.once('close', () => {
        isClosed = true;
      });
      socket.write('HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{');
    });
    expectProblem(await say(ada, 'c1'), 504, 'upstream_timeout', { retryable: 'new message' });
    await until(() => isClosed);
    await expectNotClaimed();
  });

  test('is closed if its answer is larger than metadata can be', async () => {
    await start();
    service.answering = toTheQuestion((socket) => {
      socket.write('HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n"');
      const more = setInterval(() => socket.write('x'.repeat(1 << 18)), 1);
      socket.once('close', () => clearInterval(more));
    });
    expectProblem(await say(ada, 'c1'), 502, 'upstream_bad_response');
    await expectNotClaimed();
  });

  test('tries the keys in their order, and a message follows with the one that worked', async () => {
    const keys = [CANARY.key, `${CANARY.key}-2`];
    await start({ UPSTREAM_API_KEYS: keys.join() });
    service.answering = (socket, request) => {
      if (request.all('x-api-key')[0] !== keys[0]) return false;
      socket.write(plainAnswer('401 Unauthorized', []));
      return true;
    };
    expect((await say(ada, 'c1')).status).toBe(200);
    expect(service.asked()).toEqual([QUESTION, QUESTION, MESSAGE]);
    expect(service.requests.map((request) => request.all('x-api-key')[0])).toEqual([
      keys[0],
      keys[1],
      keys[1],
    ]);
  });

  test('whose every key is refused is a 502', async () => {
    await start();
    service.answering = toTheQuestion((socket) => void socket.write(plainAnswer('403 Forbidden', [])));
    expectProblem(await say(ada, 'c1'), 502, 'upstream_key_rejected', { retryable: 'new message' });
    await expectNotClaimed();
  });

  test('ends when the client leaves, and claims nothing', async () => {
    await start();
    let isClosed = false;
    service.answering = toTheQuestion((socket) => {
      socket.once('close', () => {
        isClosed = true;
      });
    });
    const body = '{"customChannelId":"c1"}';
    const client = rawClient(relay.port, rawMessage({ cookie: ada.cookie, body }));
    await until(() => service.requests.length === 1);
    client.socket.destroy();
    await until(() => isClosed);
    await relay.logLine(({ outcome }) => outcome === 'client_closed');
    await expectNotClaimed();
  });

  test('has the budget of its path: it takes no slot of a message, and waits behind none', async () => {
    await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
    expect((await say(ada, 'c1')).status).toBe(200);
    expect((await say(ada, 'c1')).status).toBe(200);
    // The budget of messages is used up, and that of questions has one left.
    expectProblem(await say(ada, 'c2'), 429, 'rate_limited', { retryable: 'new message' });
    expect(service.asked()).toEqual([QUESTION, MESSAGE, MESSAGE, QUESTION]);
    expectProblem(await say(ada, 'c3'), 429, 'rate_limited', { retryable: 'new message' });
    expect(service.asked()).toHaveLength(4);
  });

  test('goes in the shape of the client’s path, below both base paths, with the user and the trace', async () => {
    await start({ BASE_PATH: '/chat', USER_HEADER: 'X-User' }, '/base/');
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const headers = { traceparent, 'X-User': 'bob', 'X-API-KEY': 'mine' };
    expect((await say({ ...ada, prefix: '/chat/generic', headers }, 'c1')).status).toBe(200);
    const [question] = service.requests;
    expect(question?.requestLine).toBe(
      'GET /base/generic/ns/acme/bot-provider/helper/channel/metadata?custom_channel_id=c1 HTTP/1.1',
    );
    expect(question?.all('x-user')).toEqual(['ada']);
    expect(question?.all('traceparent')).toEqual([traceparent]);
    expect(question?.all('x-api-key')).toEqual([CANARY.key]);
    expect(question?.all('cookie')).toEqual([]);
  });

  test('is asked also where the operations of chats are not enabled', async () => {
    await start({ OPERATIONS: 'message' });
    expect((await say(ada, 'c1')).status).toBe(200);
    expect(service.asked()).toEqual([QUESTION, MESSAGE]);
  });

  test.each(['scoped', 'shared'])('is not asked with CHANNELS=%s', async (CHANNELS) => {
    await start({ CHANNELS });
    expect((await say(ada, 'c1')).status).toBe(200);
    expect(service.asked()).toEqual([MESSAGE]);
  });

  test('is answered by any status before the last one only', async () => {
    await start();
    service.answering = toTheQuestion((socket) => {
      socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${NO_SUCH_CHANNEL}`);
    });
    expect((await say(ada, 'c1')).status).toBe(200);
  });
});
