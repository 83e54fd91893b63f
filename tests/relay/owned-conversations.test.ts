import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, expectProblem } from '../support/call.ts';
import {
  type ChannelService,
  giveFeedback,
  operate,
  type Sent,
  say,
  startChannelService,
  toTheQuestion,
} from '../support/owned.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { jsonAnswer } from '../support/suspend.ts';

const QUESTION = 'GET channel/metadata';
const MESSAGE = 'POST message/sse';
const BY_QUERY = [
  'GET message/sse',
  'GET channel/metadata',
  'POST message/suspend',
  'POST channel/clear',
  'DELETE channel',
];

let service: ChannelService;
let relay: TestRelay;
let ada: Sent;
let bob: Sent;
/** A new id for each test. */
let id: string;
let count = 0;

beforeAll(async () => {
  service = await startChannelService();
  relay = await startRelay(service.url, { CHANNELS: 'owned', BOTS: 'acme/helper,acme/second' });
  const { port } = relay;
  ada = { port, cookie: await relay.signIn() };
  bob = { port, cookie: await relay.signIn(OTHER_USER) };
});
afterAll(async () => {
  await relay?.close();
  await service?.close();
});
beforeEach(() => {
  service.requests.length = 0;
  service.channels.clear();
  service.answering = () => false;
  id = `Chat-${++count}`;
});

const expectNotYours = (answer: Answer) =>
  expectProblem(answer, 403, 'not_your_conversation', { retryable: false });

/** The user's session at the bot, in the shape of the specification's path. */
const atSecond = (user: Sent): Sent => ({ ...user, bot: 'second' });

describe('with CHANNELS=owned, a conversation', () => {
  test('is begun by a message after one question to the service, with its id as it is', async () => {
    const body = `{ "n":1e400,\t"customChannelId" : "${id}" }\n`;
    const answer = await say(ada, id, body);
    expect(answer.body).toBe(`data: {"channel":"acme/helper ${id}"}\n\n`);
    expect(service.asked()).toEqual([QUESTION, MESSAGE]);
    expect(String(service.requests[1]?.body)).toBe(body);
    const [{ requestLine, all } = { requestLine: '', all: () => [''] }] = service.requests;
    expect(requestLine).toBe(
      `GET /ns/acme/bot-provider/helper/channel/metadata?custom_channel_id=${id} HTTP/1.1`,
    );
    expect(all('content-length')).toEqual([]);
    expect(all('x-request-id')).toEqual([answer.headers['x-request-id']]);
  });

  test('is open to its user, about which the service is not asked again', async () => {
    await say(ada, id);
    service.requests.length = 0;
    expect((await say(ada, id)).status).toBe(200);
    expect((await say({ ...ada, prefix: '/generic' }, id)).status).toBe(200);
    for (const line of BY_QUERY) expect((await operate(ada, line, id)).status).toBe(200);
    expect((await giveFeedback(ada, id)).status).toBe(200);
    const resumed = await say({ ...ada, headers: { 'Last-Event-ID': '1' } }, id);
    expect(resumed.status).toBe(200);
    expect(service.asked()).toEqual([MESSAGE, MESSAGE, ...BY_QUERY, 'POST message/feedback', MESSAGE]);
  });

  test('is closed to another user in every operation, also in another case and at another bot', async () => {
    await say(ada, id);
    service.requests.length = 0;
    for (const name of [id, id.toUpperCase(), id.toLowerCase()]) {
      for (const user of [bob, atSecond(bob), { ...bob, prefix: '/generic' }]) {
        expectNotYours(await say(user, name));
        expectNotYours(await say({ ...user, headers: { 'Last-Event-ID': '1' } }, name));
        expectNotYours(await giveFeedback(user, name));
        for (const line of BY_QUERY) expectNotYours(await operate(user, line, name));
      }
    }
    expect(service.asked()).toEqual([]);
  });

  test('that nobody owns is begun by a message only, and no other operation reaches the service', async () => {
    for (const line of BY_QUERY) expectNotYours(await operate(ada, line, id));
    expectNotYours(await giveFeedback(ada, id));
    expectNotYours(await say({ ...ada, headers: { 'Last-Event-ID': '1' } }, id));
    expect(service.asked()).toEqual([]);
    expect((await say({ ...ada, headers: { 'Last-Event-ID': '' } }, id)).status).toBe(200);
  });

  test('that the service has already is nobody’s', async () => {
    service.channels.add(`acme/helper ${id}`);
    expectNotYours(await say(ada, id));
    expect(service.asked()).toEqual([QUESTION]);
  });

  test('without an id goes as it came, and is not asked about', async () => {
    const body = '{"text":"hi","payload":{"customChannelId":"x","__proto__":1}}';
    expect((await say(ada, id, body)).status).toBe(200);
    expect(service.asked()).toEqual([MESSAGE]);
    expect(String(service.requests[0]?.body)).toBe(body);
  });
});

describe('with CHANNELS=owned, one who owns an id reaches no older conversation', () => {
  test('of the same id at another bot', async () => {
    service.channels.add(`acme/second ${id}`);
    await say(ada, id);
    for (const line of BY_QUERY) expectNotYours(await operate(atSecond(ada), line, id));
    expectNotYours(await say(atSecond(ada), id));
    service.channels.clear();
    expect((await say(atSecond(ada), id)).status).toBe(200);
    expect((await operate(atSecond(ada), QUESTION, id)).status).toBe(200);
  });

  test('of the same id in another case', async () => {
    service.channels.add(`acme/helper ${id.toLowerCase()}`);
    await say(ada, id);
    for (const line of BY_QUERY) expectNotYours(await operate(ada, line, id.toLowerCase()));
    expectNotYours(await say(ada, id.toLowerCase()));
    expect((await say(ada, id)).status).toBe(200);
  });
});

describe('with CHANNELS=owned, of two who begin a conversation at once', () => {
  test('exactly one has it, also in different cases', async () => {
    const held: (() => void)[] = [];
    service.answering = toTheQuestion((socket) => {
      held.push(() => socket.write(jsonAnswer('404 Not Found', {})));
    });
    const answers = [say(ada, id), say(bob, id.toUpperCase())];
    await until(() => held.length === 2);
    for (const release of held) release();
    const [first, second] = (await Promise.all(answers)) as [Answer, Answer];
    expect([first.status, second.status].sort()).toEqual([200, 403]);
    expectNotYours(first.status === 403 ? first : second);
    expect(service.asked().filter((line) => line === MESSAGE)).toHaveLength(1);
    const [owner, name] = first.status === 200 ? [ada, id] : [bob, id.toUpperCase()];
    expect((await operate(owner, 'POST message/suspend', name)).status).toBe(200);
    expectNotYours(await operate(owner === ada ? bob : ada, 'POST message/suspend', name));
  });

  test('the one who was asked about later has it, if the service was slow for the other', async () => {
    const held: (() => void)[] = [];
    service.answering = toTheQuestion((socket) => {
      if (held.length > 0) return void socket.write(jsonAnswer('404 Not Found', {}));
      held.push(() => socket.write(jsonAnswer('404 Not Found', {})));
    });
    const slow = say(ada, id);
    await until(() => held.length === 1);
    expect((await say(bob, id)).status).toBe(200);
    held[0]?.();
    expectNotYours(await slow);
  });

  test('both are served if they are the same user, also if the service has it when it is asked again', async () => {
    const held: (() => void)[] = [];
    service.answering = toTheQuestion((socket) => {
      if (held.length > 0) return void socket.write(jsonAnswer('404 Not Found', {}));
      held.push(() => socket.write(jsonAnswer('200 OK', {})));
    });
    const second = say(ada, id);
    await until(() => held.length === 1);
    expect((await say(ada, id)).status).toBe(200);
    held[0]?.();
    expect((await second).status).toBe(200);
  });
});

describe('with CHANNELS=owned, the answer is 400 to', () => {
  test.each(['', 'a b', 'é', 'a/b', 'a%', 'x'.repeat(129), 'a\n'])('the id %j', async (name) => {
    expectProblem(await say(ada, name), 400, 'invalid_conversation');
    expectProblem(await operate(ada, 'POST message/suspend', name), 400, 'invalid_conversation');
    expect(service.asked()).toEqual([]);
  });

  test.each([
    '[{"customChannelId":"c1"}]',
    '"c1"',
    'null',
    '{"__proto__":{"customChannelId":"c1"}}',
    '{"\\u005f_proto__":1,"customChannelId":"c1"}',
    '{"text":"hi","constructor":{}}',
    '{"customChannelId":"c1","customChannelId":"c2"}',
    '{"customChannelId":"c1","custom_channel_id":"c2"}',
  ])('the body %s', async (body) => {
    expectProblem(await say(ada, id, body), 400, 'invalid_conversation');
    expect(service.asked()).toEqual([]);
  });
});

test('CHANNELS=owned accepts an id of 128 characters of every allowed kind', async () => {
  expect((await say(ada, `${'aZ09._:-'.repeat(15)}${'x'.repeat(8)}`)).status).toBe(200);
});
