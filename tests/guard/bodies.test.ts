import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Request } from 'express';
import fc from 'fast-check';
import { PROBLEMS, type ProblemCode } from '../../src/errors.ts';
import { freeBytes } from '../../src/http/body.ts';
import { readJson, turns } from '../../src/http/read-json.ts';
import { bodyBytes } from '../../src/pace/body-bytes.ts';
import { route, type Steps } from '../../src/routes/route.ts';
import { type Answer, call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import { BOT_PATH, MESSAGE, OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const DONE = wholeStream('data: 1\n\n');

/** What the relay has counted is its own, so that most tests have one of their own. */
let pair: RelayAndUpstream;
const clients: RawClient[] = [];
function open(bytes: string, port = pair.relay.port, allowHalfOpen = false): RawClient {
  const client = rawClient(port, bytes, { allowHalfOpen });
  clients.push(client);
  return client;
}
afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.destroy();
});
const write = (client: RawClient, bytes: string | Uint8Array) =>
  new Promise<unknown>((sent) => client.socket.write(bytes, sent));
const answers = (client: RawClient) => client.text().match(/HTTP\/1\.1 \d+/g);

describe('a route that reads a body', () => {
  const HEAD = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
  let stage: TestApp;
  const arrived: unknown[] = [];
  let failed: unknown[] = [];
  let lateReads = 0;
  /** How many listeners a request has after its body was refused. */
  const listenersLeft: number[] = [];
  const openAt = (path: string, rest: string) => open(HEAD.replace('/', path) + rest, stage.port);
  beforeAll(async () => {
    stage = await startTestApp((app) => {
      const keep =
        (timeoutMs: number, maxBytes = 2000): Steps =>
        async (req, res) => {
          arrived.push(String((await readJson(req, { maxBytes, timeoutMs })).bytes));
          res.end('read');
        };
      app.get('/next', (_req, res) => void res.end('the next answer'));
      route(app, '/', { post: keep(60_000) });
      route(app, '/large', { post: keep(60_000, 20_000) });
      route(app, '/hasty', { post: keep(50) });
      route(app, '/late', {
        async post(req, res) {
          lateReads += 1;
          await new Promise((resolve) => req.once('close', resolve));
          await new Promise(setImmediate);
          lateReads += 1;
          await keep(10)(req, res);
        },
      });
      app.use((error: unknown, req: Request, _res: unknown, next: (error: unknown) => void) => {
        failed.push(error);
        listenersLeft.push(req.listenerCount('data') + req.listenerCount('end'));
        next(error);
      });
    });
  });
  afterEach(() => {
    expect(listenersLeft.splice(0).filter(Boolean)).toEqual([]);
    failed = [];
    arrived.length = 0;
  });
  afterAll(() => stage.close());

  test('refuses one that is too large by its Content-Length before any of it arrives', async () => {
    const client = openAt('/', 'Content-Length: 2001\r\n\r\n');
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
  });

  test('refuses one that is too large by its chunks while it arrives, and its connection can be used again', async () => {
    const part = `400\r\n${' '.repeat(1024)}\r\n`;
    const client = openAt('/', `Transfer-Encoding: chunked\r\n\r\n${part}${part}`);
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
    client.socket.write(`${part.repeat(100)}0\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n`);
    await client.waitFor('the next answer');
    expect(arrived).toEqual([]);
  });

  test.each([
    ['with a Content-Length', 'Content-Length: 20\r\n\r\n{"text":'],
    ['in chunks', 'Transfer-Encoding: chunked\r\n\r\n8\r\n{"text":\r\n'],
    ['of which nothing arrives', 'Content-Length: 20\r\n\r\n'],
  ])('refuses one %s that never finishes in time, and the connection closes', async (_how, rest) => {
    stopClock();
    const client = openAt('/', `Expect: 100-continue\r\n${rest}`);
    await client.waitFor('100 Continue\r\n\r\n');
    await until(() => jest.getTimerCount() > 0);
    pass(60_000);
    await client.waitFor('"}');
    const answer = parseAnswer(client.text().split('100 Continue\r\n\r\n')[1] ?? '');
    expectProblem(answer, 408, 'request_timeout', { retryable: 'new message' });
    expect(answer.headers.connection).toBe('close');
    expect(arrived).toEqual([]);
  });

  test('gets one in any chunks as it was sent', () =>
    fc.assert(
      fc.asyncProperty(
        // The room for it grows at 4096 bytes, and doubles.
        fc.array(fc.oneof(fc.integer({ min: 1, max: 5000 }), fc.constantFrom(1, 2, 4094, 4095, 4096)), {
          minLength: 1,
          maxLength: 4,
        }),
        async (sizes) => {
          arrived.length = 0;
          const body = `"${'x'.repeat(sizes.reduce((sum, size) => sum + size, 0) - 1)}"`;
          const client = openAt('/large', 'Transfer-Encoding: chunked\r\n\r\n');
          let at = 0;
          for (const size of [...sizes, 1]) {
            await write(client, chunk(body.slice(at, at + size)));
            at += size;
          }
          client.socket.write(LAST_CHUNK);
          await client.waitFor('read');
          expect(arrived).toEqual([body]);
        },
      ),
    ));

  test('does not wait for the body of a client that has left before', async () => {
    lateReads = 0;
    const client = openAt('/late', 'Content-Length: 20\r\n\r\n{');
    await until(() => lateReads === 1);
    client.socket.destroy();
    // A wait for the body would have begun before that of the next request, and would end before it.
    await until(() => lateReads === 2);
    await openAt('/hasty', 'Content-Length: 20\r\n\r\n{').waitFor('"}');
    expect([failed.length, arrived.length]).toEqual([1, 0]);
  });
});

describe('the body of a message', () => {
  beforeAll(async () => {
    // With scoped channels, a message must be an object.
    const environment = { MAX_BODY_BYTES: '1000', CHANNELS: 'shared' };
    pair = await startRelayAndUpstream((socket) => socket.write(DONE), environment);
  });
  afterAll(() => pair.close());
  const post = (headers: Record<string, string>, body: string | Buffer = MESSAGE) =>
    call(pair.relay.port, BOT_PATH, { method: 'POST', headers: { Cookie: pair.cookie, ...headers }, body });
  const last = () => pair.upstream.requests.at(-1);

  test.each(['application/json', 'application/json;charset=x', 'Application/JSON ; v=1'])(
    'may be %s, and goes upstream as plain JSON',
    async (type) => {
      expect((await post({ 'Content-Type': type, 'Content-Encoding': 'Identity' })).status).toBe(200);
      const sent = ['content-type', 'content-encoding'].map((name) => last()?.all(name));
      expect(sent).toEqual([['application/json'], []]);
    },
  );

  test.each([
    ' {"b" : "\\u00e9é🤖",\r\n"a":12345678901234567890.10} ',
    '0',
    // The allowed size.
    `"${'x'.repeat(998)}"`,
  ])('goes upstream byte for byte: %s', async (body) => {
    expect((await post({ 'Content-Type': 'application/json' }, body)).status).toBe(200);
    expect(String(last()?.body)).toBe(body);
  });

  const BODY = '{"text":"Grüße 🤖"}';
  const head = (...headers: string[]) =>
    [
      ...[`POST ${BOT_PATH} HTTP/1.1`, 'Host: a', `Cookie: ${pair.cookie}`, 'Content-Type: application/json'],
      ...[...headers, '', ''],
    ].join('\r\n');
  const inLatin1 = Buffer.from(BODY).toString('latin1');
  const TRAILED = `b;x=y\r\n${inLatin1.slice(0, 11)}\r\n${chunk(Buffer.from(BODY).subarray(11)).toString('latin1')}0\r\nX-Api-Key: evil\r\n\r\n`;

  test('goes upstream complete and with its length if it comes byte by byte in chunks, with extensions and trailers', async () => {
    const client = open(head('Transfer-Encoding: chunked', 'Trailer: X-Api-Key'));
    for (const byte of Buffer.from(TRAILED, 'latin1')) await write(client, Uint8Array.of(byte));
    await client.waitFor(LAST_CHUNK);
    expect(String(last()?.body)).toBe(BODY);
    expect(last()?.all('content-length')).toEqual([String(Buffer.byteLength(BODY))]);
    expect(last()?.all('transfer-encoding')).toEqual([]);
    expect(last()?.all('x-api-key')).toHaveLength(1);
  });

  test.each([
    ['shorter than its length', `Content-Length: ${Buffer.byteLength(BODY) + 1}`, BODY],
    ['in chunks without the last one', '', `5\r\n{"a":\r\n2\r\n1}\r\n`],
    ['in chunks with a bad size', '', `7\r\n{"a":1}\r\nzz\r\n`],
    ['in a chunk that is longer than its size', '', `6\r\n{"a":1}\r\n0\r\n\r\n`],
    ['in a chunk with a huge size', '', `fffffffffffffffff\r\n{"a":1}\r\n0\r\n\r\n`],
    ['in chunks with bare LF as line ends', '', `7\n{"a":1}\n0\n\n`],
  ])('%s never goes upstream', async (_how, header, body) => {
    const opened = pair.upstream.sockets.length;
    const client = open(head(header || 'Transfer-Encoding: chunked') + body, pair.relay.port, true);
    client.socket.end();
    await client.closed;
    if (client.text() !== '') expectProblem(parseAnswer(client.text()), 400, 'bad_request');
    expect(pair.upstream.sockets).toHaveLength(opened);
  });

  test('longer than its length goes upstream at most up to that length', async () => {
    const before = pair.upstream.requests.length;
    const client = open(`${head(`Content-Length: ${MESSAGE.length}`)}${MESSAGE}{"more":"than said"}`);
    await client.closed;
    const sent = pair.upstream.requests.slice(before).map(({ body }) => String(body));
    expect([[], [MESSAGE]]).toContainEqual(sent);
    expect(answers(client)?.length ?? 0).toBeLessThanOrEqual(2);
  });

  test('does not go upstream if its client leaves in the middle of it', async () => {
    const opened = pair.upstream.sockets.length;
    const client = open(`${head('X-Request-Id: left-mid-body-1', 'Content-Length: 20')}{"text":`);
    client.socket.once('connect', () => setImmediate(() => client.socket.resetAndDestroy()));
    const line = await pair.relay.logLine(({ requestId }) => requestId === 'left-mid-body-1');
    expect(line).toMatchObject({ status: 499, outcome: 'client_closed' });
    expect(pair.upstream.sockets).toHaveLength(opened);
  });
});

describe('a refused request', () => {
  /** For how long the relay reads the rest of a body. */
  const READ_REST_MS = 2000;
  const NEXT = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\n\r\n';
  beforeEach(async () => {
    stopClock();
    pair = await startRelayAndUpstream((socket) => socket.write(DONE.subarray(0, -5)));
  });
  afterEach(async () => {
    jest.useRealTimers();
    await pair.close();
  });

  /** Sends the head of a message and a part of its body; resolves once it is refused. */
  async function refused(status: number, cookie: string, framing: string, part = '') {
    const head = rawMessage({ cookie, body: '', headers: [framing] }).replace('Content-Length: 0\r\n', '');
    const client = open(head + part);
    await client.waitFor('"}');
    expect(answers(client)).toEqual([`HTTP/1.1 ${status}`]);
    return client;
  }

  test.each([401, 413])(
    'whose body never ends is read for a moment after its %i, then the connection is closed',
    async (status) => {
      const cookie = status === 413 ? pair.cookie : '';
      const client = await refused(status, cookie, 'Content-Length: 100000000000');
      // The client needs time to read the answer, but must not send for ever.
      pass(READ_REST_MS - 1);
      client.socket.write(Buffer.alloc(1000));
      await call(pair.relay.port, '/healthz');
      expect(client.socket.destroyed).toBe(false);
      pass(1);
      await client.closed;
      expect(answers(client)).toEqual([`HTTP/1.1 ${status}`]);
    },
  );

  test('whose body ends in time leaves its connection open for the next requests', async () => {
    const client = await refused(401, '', 'Content-Length: 20', '{"text":');
    client.socket.write(`"and so on"}${NEXT}`);
    await client.waitFor('{"status":"ok"}');
    pass(READ_REST_MS * 2);
    client.socket.write(NEXT.replace('GET /healthz', 'GET /readyz'));
    await client.waitFor('"accepting"');
    expect(answers(client)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200', 'HTTP/1.1 200']);
  });

  test('whose body was complete has the next one on its connection answered at once', async () => {
    const client = open(rawMessage({ cookie: pair.cookie, body: 'no JSON' }) + NEXT);
    await client.waitFor('{"status":"ok"}');
    expect(answers(client)).toEqual(['HTTP/1.1 400', 'HTTP/1.1 200']);
  });

  test('behind a stream on its connection does not cut the stream, if its body is not complete', async () => {
    const client = pair.ask();
    await client.waitFor('data: 1');
    client.socket.write('POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{');
    // After this, the relay has read the other request.
    await call(pair.relay.port, '/healthz');
    pass(READ_REST_MS * 2);
    pair.upstream.sockets[0]?.write(chunk('data: 2\n\n'));
    await client.waitFor('data: 2');
  });

  test('whose body turns out to be malformed gets no second answer', async () => {
    const client = await refused(401, '', 'Transfer-Encoding: chunked', '8\r\n{"text":\r\n');
    client.socket.write('no size\r\n');
    await client.closed;
    expect(answers(client)).toEqual(['HTTP/1.1 401']);
  });

  test('that closes its connection waits for the rest of the body', async () => {
    const client = await refused(401, '', 'Content-Length: 40000\r\nConnection: close');
    for (let sent = 0; sent < 4; sent += 1) {
      await write(client, Buffer.alloc(9000));
      expect(client.socket.destroyed).toBe(false);
    }
    client.socket.end(Buffer.alloc(4000));
    expect(await client.closed).toEqual({ error: undefined });
  });
});

describe('of bodies', () => {
  /** The default of MAX_BODY_BYTES. */
  const LARGEST = 2 ** 18;
  /** Refused, but not before all of it is read. */
  const NO_JSON = `"${'x'.repeat(LARGEST - 1)}`;
  const FEEDBACK = BOT_PATH.replace('sse', 'feedback');
  async function start(environment: Record<string, string> = {}, answer: string | Buffer = DONE) {
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
  const expectCode = async (code: ProblemCode, sent: Sent) =>
    expectProblem(await post(sent), PROBLEMS[code].status, code);

  /** Stops the clock of the buckets alone; the returned function moves it on. */
  function stopBuckets(): (ms: number) => void {
    let now = performance.now();
    jest.spyOn(performance, 'now').mockImplementation(() => now);
    return (ms) => {
      now += ms;
    };
  }

  test('a message may have 256 KiB by default, 64 levels, and 10,000 members and elements, and no more', async () => {
    await start();
    const withPayload = (payload: string) => `{"payload":${payload}}`;
    const nested = (depth: number) => withPayload('['.repeat(depth - 1) + ']'.repeat(depth - 1));
    const list = (count: number, of: (n: number) => string) => Array.from({ length: count }, (_, n) => of(n));
    const elements = (count: number) => withPayload(`[${list(count - 1, () => '1').join()}]`);
    const members = (count: number) =>
      withPayload(`{${list(count - 1, (n) => `"\\"[${n}":"{,\\\\"`).join()}}`);
    /** The payload counts, and of each object itself, its two members, and the empty array. */
    const objects = (count: number) => withPayload(`[${list(count, () => '{"a":1, "b":[ ]}').join(' , ')}]`);
    for (const body of [nested(64), elements(10_000), members(10_000), objects(2_499)]) {
      expect((await post({ body })).status).toBe(200);
      expect(String(pair.upstream.requests.at(-1)?.body)).toBe(body);
    }
    for (const body of [nested(65), elements(10_001), members(10_001), objects(2_500), '['.repeat(10_000)])
      expect((await expectCode('body_too_large', { body })).retryable).toBe(false);
    expect(pair.upstream.requests).toHaveLength(4);
    await expectCode('body_too_large', { body: `${NO_JSON} ` });
  });

  test('a user may send 1 MiB at once in all sessions together, and 256 KiB more each second', async () => {
    await start();
    const moveOn = stopBuckets();
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
    // Who has sent nothing for long may send no more at once.
    moveOn(100_000);
    for (let n = 0; n < 4; n += 1) await expectCode('invalid_json', { body: NO_JSON });
    await expectCode('too_many_attempts', { body: NO_JSON });
  });

  test('what comes in chunks counts as it arrives, a small chunk as what it costs, and other operations count, too', async () => {
    await start();
    stopBuckets();
    const headers = { 'Transfer-Encoding': 'chunked' };
    for (let n = 0; n < 3; n += 1) await expectCode('invalid_json', { body: NO_JSON, headers });
    // A quarter of the last part; 6,144 chunks of 128 bytes are the other three.
    await expectCode('invalid_json', { path: FEEDBACK, body: NO_JSON.slice(0, 65_536) });
    const head = rawMessage({ cookie: pair.cookie, body: '', headers: ['Transfer-Encoding: chunked'] });
    const small = '1\r\n \r\n'.repeat(1_700);
    const client = open(`${head.replace('Content-Length: 0\r\n', '')}${small}0\r\n\r\n`);
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 429, 'too_many_attempts');
    await expectCode('too_many_attempts', { body: NO_JSON, headers });
  });

  test('those of guests count for their address, too', async () => {
    await start();
    const { port, close } = await startRelay(pair.upstream.url, { AUTH_MODE: 'guest', TRUST_PROXY: '1' });
    const guest = async () => {
      const { headers } = await call(port, '/auth/guest', { method: 'POST' });
      return String(headers['set-cookie']).split(';')[0] as string;
    };
    stopBuckets();
    const expectFrom = (address: string, code: ProblemCode, sent: Sent) =>
      expectCode(code, { port, ...sent, headers: { 'X-Forwarded-For': address } });
    for (let n = 0; n < 4; n += 1)
      await expectFrom('10.0.0.1', 'invalid_json', { cookie: await guest(), body: NO_JSON });
    const cookie = await guest();
    await expectFrom('10.0.0.1', 'too_many_attempts', { cookie, body: '{}' });
    // Nothing of what is refused for the address is taken from the user.
    for (const address of ['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'])
      await expectFrom(address, 'invalid_json', { cookie, body: NO_JSON });
    await expectFrom('10.0.0.6', 'too_many_attempts', { cookie, body: '{}' });
    await close();
  });

  test('those of 10,000 users are remembered: with one more, who has sent nothing for longest starts anew', async () => {
    await start();
    const countBody = bodyBytes(1);
    stopBuckets();
    const send = (user: string, bytes: number) => {
      const { count, release } = countBody({ user });
      count(bytes);
      release();
    };
    send('eve', 2 ** 20 - 1);
    send('ada', 2 ** 20);
    for (let n = 2; n < 10_000; n += 1) send(`user ${n}`, 1);
    send('eve', 1);
    expect(codeThrownBy(() => send('ada', 1))).toBe('too_many_attempts');
    send('one more', 1);
    send('ada', 2 ** 20);
    expect(codeThrownBy(() => send('eve', 1))).toBe('too_many_attempts');
  });

  describe('that are under way,', () => {
    /** Three of these are three quarters of the room, but for 3 KiB. */
    const LARGE = 2 ** 24 - 1024;
    const messageOf = (n: number) => `{"text":"${n}${'x'.repeat(LARGE - 12)}"}`;
    let moveOn: (ms: number) => void;

    /** The code of the answer to a large body, when its user has sent nothing for 10 s. */
    async function codeOfLarge(): Promise<string> {
      moveOn(10_000);
      return JSON.parse((await post({ body: NO_JSON.slice(0, 20_000) })).body).code;
    }
    /** Sends a message that the bot service does not answer yet. */
    async function send(body: string): Promise<RawClient> {
      moveOn(10_000);
      const client = pair.ask({ body });
      await pair.upstream.nextRequest();
      return client;
    }

    test('there may be 64 MiB, of which large ones leave a quarter to small ones, until the service answers', async () => {
      await start({ MAX_BODY_BYTES: String(LARGE), JOIN_GRACE_MS: '0' }, '');
      moveOn = stopBuckets();
      // Each is a message of its own: the same bytes would join its run.
      for (let n = 1; n <= 2; n += 1) await send(messageOf(n));
      const third = await send(messageOf(3));
      const refused = await post({ body: NO_JSON.slice(0, 20_000) });
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
      const headers = ['X-Request-Id: leaves-early'];
      const leaving = open(rawMessage({ cookie: pair.cookie, body: messageOf(5), headers }).slice(0, 2000));
      leaving.socket.once('connect', () => setImmediate(() => leaving.socket.resetAndDestroy()));
      await pair.relay.logLine(({ requestId }) => requestId === 'leaves-early');
      await until(async () => (await codeOfLarge()) === 'invalid_json');
      // Another operation is refused.
      await expectCode('invalid_json', { path: FEEDBACK, body: NO_JSON.slice(0, 65_536) });
      expect(await codeOfLarge()).toBe('invalid_json');
    });

    test('they count until the service answers, also after their clients have left', async () => {
      await start({ MAX_BODY_BYTES: String(LARGE), JOIN_GRACE_MS: '600000' }, '');
      moveOn = stopBuckets();
      for (let n = 1; n <= 3; n += 1) (await send(messageOf(n))).socket.destroy();
      await until(() => pair.relay.logs.filter(({ outcome }) => outcome === 'client_closed').length === 3);
      expect(await codeOfLarge()).toBe('busy');
      pair.upstream.sockets[0]?.write(STREAM_HEAD);
      await until(async () => (await codeOfLarge()) === 'invalid_json');
    });
  });
});

test('bytes that are not read any more are freed, but not those that share their memory with others', () => {
  const bytes = Buffer.from(new ArrayBuffer(100_000));
  freeBytes(bytes);
  freeBytes(bytes);
  expect([bytes.length, bytes.buffer.byteLength]).toEqual([0, 0]);
  const whole = Buffer.alloc(100_000, 'a');
  const pooled = Buffer.from('pooled');
  for (const shared of [whole.subarray(0, 50_000), whole.subarray(50_000), pooled]) freeBytes(shared);
  freeBytes(Buffer.from(new SharedArrayBuffer(10)));
  expect([whole.toString(), pooled.toString()]).toEqual(['a'.repeat(100_000), 'pooled']);
});

test('large bodies are parsed in their order, each in another round of the event loop', async () => {
  let round = 0;
  let isCounting = true;
  const count = () => {
    round += 1;
    if (isCounting) setImmediate(count);
  };
  setImmediate(count);
  const nextTurn = turns();
  const had: [caller: number, round: number][] = [];
  const ask = (caller: number) => nextTurn().then(() => void had.push([caller, round]));
  await Promise.all([1, 2, 3].map(ask));
  await ask(4);
  isCounting = false;
  expect(had.map(([caller]) => caller)).toEqual([1, 2, 3, 4]);
  expect(new Set(had.map(([, at]) => at)).size).toBe(4);
});
