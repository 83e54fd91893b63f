import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Answer, call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { BOT_PATH, OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
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

function post({
  cookie = pair.cookie,
  body,
  headers,
  path = BOT_PATH,
  port = pair.relay.port,
}: Sent): Promise<Answer> {
  return call(port, path, {
    method: 'POST',
    body,
    headers: { Cookie: cookie, 'Content-Type': 'application/json', ...headers },
  });
}

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
  withPayload(`{${Array.from({ length: count - 1 }, (_, n) => `"\\"[${n}":"{,"`).join()}}`);
/** The payload counts, and of each object itself, its two members, and the empty array. */
const objects = (count: number) =>
  withPayload(`[${Array.from({ length: count }, () => '{"a":1, "b":[ ]}').join(' , ')}]`);

describe('a message', () => {
  test.each([
    ['64 levels', nested(64)],
    ['10,000 elements', elements(10_000)],
    ['10,000 members', members(10_000)],
    ['10,000 of both, but for three', objects(2_499)],
  ])('may have %s', async (_what, body) => {
    await start();
    expect((await post({ body })).status).toBe(200);
    expect(pair.upstream.requests.at(-1)?.body.toString()).toBe(body);
  });

  test.each([
    ['65 levels', nested(65)],
    ['10,001 elements', elements(10_001)],
    ['10,001 members', members(10_001)],
    ['10,001 of both', objects(2_500)],
    ['ten thousand levels that do not end', '['.repeat(10_000)],
  ])('with %s is refused', async (_what, body) => {
    await start();
    expectProblem(await post({ body }), 413, 'body_too_large', { retryable: false });
    expect(pair.upstream.sockets).toHaveLength(0);
  });
});

test('a body has at most 256 KiB by default', async () => {
  await start();
  expectProblem(await post({ body: `${NO_JSON} ` }), 413, 'body_too_large');
  expectProblem(await post({ body: NO_JSON }), 400, 'invalid_json');
});

describe('the bodies of one user', () => {
  test('have 1 MiB at once in all sessions together, and 256 KiB more each second', async () => {
    await start();
    const moveOn = stopClock();
    const cookies = [pair.cookie, await pair.relay.signIn()];
    for (const n of [0, 1, 0, 1])
      expectProblem(await post({ cookie: cookies[n] as string, body: NO_JSON }), 400, 'invalid_json');
    for (const cookie of cookies) {
      const refused = await post({ cookie, body: '{' });
      expectProblem(refused, 429, 'too_many_attempts', { retryable: 'new message' });
      expect(refused.headers['retry-after']).toBe('1');
    }
    const other = await pair.relay.signIn(OTHER_USER);
    expect((await post({ cookie: other, body: '{}' })).status).toBe(200);
    moveOn(500);
    const half = await post({ body: NO_JSON });
    expectProblem(half, 429, 'too_many_attempts');
    expect((await post({ body: '{}' })).status).toBe(200);
    moveOn(501);
    expectProblem(await post({ body: NO_JSON }), 400, 'invalid_json');
    expectProblem(await post({ body: NO_JSON }), 429, 'too_many_attempts');
  });

  test('count as they arrive if they come in chunks, and those of other operations count, too', async () => {
    await start();
    stopClock();
    const chunked = { 'Transfer-Encoding': 'chunked' };
    for (let n = 0; n < 3; n += 1)
      expectProblem(await post({ body: NO_JSON, headers: chunked }), 400, 'invalid_json');
    const feedback = BOT_PATH.replace('sse', 'feedback');
    for (let n = 0; n < 4; n += 1)
      expectProblem(await post({ path: feedback, body: NO_JSON.slice(0, 65_536) }), 400, 'invalid_json');
    expectProblem(await post({ path: feedback, body: '{}' }), 429, 'too_many_attempts');
    expectProblem(await post({ body: NO_JSON, headers: chunked }), 429, 'too_many_attempts');
  });

  test('count for the address, too, if they are guests', async () => {
    await start();
    const { port, close } = await startRelay(pair.upstream.url, { AUTH_MODE: 'guest', TRUST_PROXY: '1' });
    stopClock();
    const codeOf = async (cookie: string, address: string, body: string) => {
      const answer = await post({ port, cookie, body, headers: { 'X-Forwarded-For': address } });
      return JSON.parse(answer.body).code;
    };
    for (let n = 0; n < 4; n += 1)
      expect(await codeOf(await guestAt(port), '10.0.0.1', NO_JSON)).toBe('invalid_json');
    const cookie = await guestAt(port);
    expect(await codeOf(cookie, '10.0.0.1', '{}')).toBe('too_many_attempts');
    // Nothing of what is refused for the address is taken from the user.
    for (const address of ['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'])
      expect(await codeOf(cookie, address, NO_JSON)).toBe('invalid_json');
    expect(await codeOf(cookie, '10.0.0.6', '{}')).toBe('too_many_attempts');
    await close();
  });
});

test('a chunk of one byte counts as what it costs', async () => {
  await start();
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
    const feedback = { path: BOT_PATH.replace('sse', 'feedback'), body: noJson.slice(0, 65_536) };
    expectProblem(await post(feedback), 400, 'invalid_json');
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
