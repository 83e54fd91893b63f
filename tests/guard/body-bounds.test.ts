import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { PROBLEMS, type ProblemCode } from '../../src/errors.ts';
import { bodyBytes } from '../../src/pace/body-bytes.ts';
import { type Answer, call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { BOT_PATH, OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

/** The default of MAX_BODY_BYTES. */
const LARGEST = 2 ** 18;
/** Refused, but not before all of it is read. */
const NO_JSON = `"${'x'.repeat(LARGEST - 1)}`;

let pair: RelayAndUpstream;
async function start(
  environment: Record<string, string> = {},
  answer: string | Buffer = wholeStream('data: 1\n\n'),
) {
  pair = await startRelayAndUpstream((socket) => socket.write(answer), environment);
}
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
});

interface Sent {
  readonly cookie?: string;
  readonly body: string;
  readonly headers?: Record<string, string>;
  readonly path?: string;
  readonly port?: number;
}

async function post(sent: Sent): Promise<Answer> {
  const { cookie = pair.cookie, body, headers, path = BOT_PATH, port = pair.relay.port } = sent;
  const all = { Cookie: cookie, 'Content-Type': 'application/json', ...headers };
  return call(port, path, { method: 'POST', body, headers: all });
}
async function expectCode(code: ProblemCode, sent: Sent) {
  const answer = await post(sent);
  return expectProblem(answer, PROBLEMS[code].status, code);
}
const FEEDBACK = BOT_PATH.replace('sse', 'feedback');

/** Stops the clock of the buckets; the returned function moves it on. */
function stopClock(): (ms: number) => void {
  let now = performance.now();
  jest.spyOn(performance, 'now').mockImplementation(() => now);
  return (ms) => {
    now += ms;
  };
}

/** The body of a message with this JSON in its payload. */
const withPayload = (payload: string) => `{"payload":${payload}}`;
const nested = (depth: number) => withPayload('['.repeat(depth - 1) + ']'.repeat(depth - 1));
const elements = (count: number) => withPayload(`[${Array.from({ length: count - 1 }, () => 1).join()}]`);
const members = (count: number) =>
  withPayload(`{${Array.from({ length: count - 1 }, (_, n) => `"\\"[${n}":"{,\\\\"`).join()}}`);
/** The payload counts, and of each object itself, its two members, and the empty array. */
const objects = (count: number) =>
  withPayload(`[${Array.from({ length: count }, () => '{"a":1, "b":[ ]}').join(' , ')}]`);

test('a message may have 64 levels and 10,000 members and elements, and no more', async () => {
  await start();
  for (const body of [nested(64), elements(10_000), members(10_000), objects(2_499)]) {
    expect((await post({ body })).status).toBe(200);
    expect(String(pair.upstream.requests.at(-1)?.body)).toBe(body);
  }
  for (const body of [nested(65), elements(10_001), members(10_001), objects(2_500), '['.repeat(10_000)])
    expect((await expectCode('body_too_large', { body })).retryable).toBe(false);
  expect(pair.upstream.requests).toHaveLength(4);
});

test('a body has at most 256 KiB by default', async () => {
  await start();
  await expectCode('body_too_large', { body: `${NO_JSON} ` });
  await expectCode('invalid_json', { body: NO_JSON });
});

describe('the bodies of one user', () => {
  test('have 1 MiB at once in all sessions together, and 256 KiB more each second', async () => {
    await start();
    const moveOn = stopClock();
    const cookies = [pair.cookie, await pair.relay.signIn()];
    for (const n of [0, 1, 0, 1])
      await expectCode('invalid_json', { cookie: cookies[n] as string, body: NO_JSON });
    for (const cookie of cookies) {
      const refused = await post({ cookie, body: '{' });
      expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
      expect(refused.headers['retry-after']).toBe('1');
    }
    const other = await pair.relay.signIn(OTHER_USER);
    expect((await post({ cookie: other, body: '{}' })).status).toBe(200);
    moveOn(500);
    await expectCode('too_many_attempts', { body: NO_JSON });
    expect((await post({ body: '{}' })).status).toBe(200);
    moveOn(501);
    await expectCode('invalid_json', { body: NO_JSON });
    await expectCode('too_many_attempts', { body: NO_JSON });
  });

  test('count as they arrive if they come in chunks, and those of other operations count, too', async () => {
    await start();
    stopClock();
    const headers = { 'Transfer-Encoding': 'chunked' };
    for (let n = 0; n < 3; n += 1) await expectCode('invalid_json', { body: NO_JSON, headers });
    for (let n = 0; n < 4; n += 1)
      await expectCode('invalid_json', { path: FEEDBACK, body: NO_JSON.slice(0, 65_536) });
    await expectCode('too_many_attempts', { path: FEEDBACK, body: '{}' });
    await expectCode('too_many_attempts', { body: NO_JSON, headers });
  });

  test('count for the address, too, if they are guests', async () => {
    await start();
    const { port, close } = await startRelay(pair.upstream.url, { AUTH_MODE: 'guest', TRUST_PROXY: '1' });
    stopClock();
    const expectFrom = (address: string, code: ProblemCode, sent: Sent) =>
      expectCode(code, { port, ...sent, headers: { 'X-Forwarded-For': address } });
    for (let n = 0; n < 4; n += 1)
      await expectFrom('10.0.0.1', 'invalid_json', { cookie: await guestAt(port), body: NO_JSON });
    const cookie = await guestAt(port);
    await expectFrom('10.0.0.1', 'too_many_attempts', { cookie, body: '{}' });
    // Nothing of what is refused for the address is taken from the user.
    for (const address of ['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'])
      await expectFrom(address, 'invalid_json', { cookie, body: NO_JSON });
    await expectFrom('10.0.0.6', 'too_many_attempts', { cookie, body: '{}' });
    await close();
  });

  test('are remembered of 10,000 users: with one more, who has sent nothing for longest starts anew', async () => {
    await start();
    const countBody = bodyBytes(1);
    stopClock();
    const send = (user: string, bytes: number) => {
      const { count, release } = countBody({ user });
      count(bytes);
      release();
    };
    send('ada', 2 ** 20);
    for (let n = 1; n < 10_000; n += 1) send(`user ${n}`, 1);
    expect(codeThrownBy(() => send('ada', 1))).toBe('too_many_attempts');
    send('one more', 1);
    send('ada', 2 ** 20);
  });
});

test('a chunk of one byte counts as what it costs', async () => {
  await start();
  // However long they take to arrive.
  stopClock();
  const head = rawMessage({ cookie: pair.cookie, body: '', headers: ['Transfer-Encoding: chunked'] });
  // More than 8,192 chunks of 128 bytes are more than 1 MiB.
  const chunks = '1\r\n \r\n'.repeat(9_000);
  const client = rawClient(pair.relay.port, `${head.replace('Content-Length: 0\r\n', '')}${chunks}0\r\n\r\n`);
  await client.waitFor('"}');
  expectProblem(parseAnswer(client.text()), 429, 'too_many_attempts');
});

async function guestAt(port: number): Promise<string> {
  const { headers } = await call(port, '/auth/guest', { method: 'POST' });
  return String(headers['set-cookie']).split(';')[0] as string;
}

describe('the bodies that are under way', () => {
  /** Three of these and a small one are three quarters of the room. */
  const LARGE = 2 ** 24 - 1024;
  const messageOf = (n: number) => `{"text":"${n}${'x'.repeat(LARGE - 12)}"}`;
  const message = messageOf(0);
  const noJson = message.slice(0, -1);
  let moveOn: (ms: number) => void;

  /** Sends a large body after a moment in which its user has sent nothing. */
  async function codeOfLarge(): Promise<string> {
    moveOn(10_000);
    return JSON.parse((await post({ body: noJson })).body).code;
  }

  /** Sends a message that the bot service does not answer yet. */
  async function send(body: string): Promise<RawClient> {
    moveOn(10_000);
    const client = pair.ask({ body });
    await pair.upstream.nextRequest();
    return client;
  }

  test('have 64 MiB, of which large ones leave a quarter to small ones, until the service answers', async () => {
    await start({ MAX_BODY_BYTES: String(LARGE), JOIN_GRACE_MS: '0' }, '');
    moveOn = stopClock();
    // Each is a message of its own: the same bytes would join its run.
    for (let n = 1; n <= 2; n += 1) await send(messageOf(n));
    const third = await send(messageOf(3));
    const refused = await post({ body: noJson });
    expectProblem(refused, 503, 'busy', { retryable: 'new message' });
    expect(refused.headers['retry-after']).toBe('1');
    await send('{"text":"a small one"}');
    // The answer begins.
    pair.upstream.sockets[0]?.write(STREAM_HEAD);
    await until(async () => (await codeOfLarge()) === 'invalid_json');
    // The one that was refused was given back, too.
    await send(messageOf(4));
    expect(await codeOfLarge()).toBe('busy');
    third.socket.destroy();
    await until(async () => (await codeOfLarge()) === 'invalid_json');
    // Its client leaves while it arrives.
    const all = rawMessage({ cookie: pair.cookie, body: message, headers: ['X-Request-Id: leaves-early'] });
    const leaving = rawClient(pair.relay.port, all.slice(0, 2000));
    leaving.socket.once('connect', () => setImmediate(() => leaving.socket.resetAndDestroy()));
    await pair.relay.logLine(({ requestId }) => requestId === 'leaves-early');
    await until(async () => (await codeOfLarge()) === 'invalid_json');
    // Another operation is refused.
    await expectCode('invalid_json', { path: FEEDBACK, body: noJson.slice(0, 65_536) });
    expect(await codeOfLarge()).toBe('invalid_json');
  });

  test('count until the service answers, also after their clients have left', async () => {
    await start({ MAX_BODY_BYTES: String(LARGE), JOIN_GRACE_MS: '600000' }, '');
    moveOn = stopClock();
    for (let n = 1; n <= 3; n += 1) (await send(messageOf(n))).socket.destroy();
    await until(() => pair.relay.logs.filter(({ outcome }) => outcome === 'client_closed').length === 3);
    expect(await codeOfLarge()).toBe('busy');
    pair.upstream.sockets[0]?.write(STREAM_HEAD);
    await until(async () => (await codeOfLarge()) === 'invalid_json');
  });
});
