import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { Request } from 'express';
import fc from 'fast-check';
import { type BodyOptions, freeBytes, readForm } from '../../src/http/body.ts';
import { readJson, turns } from '../../src/http/read-json.ts';
import { route, type Steps } from '../../src/routes/route.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { type RawClient, rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';
import { chunk, LAST_CHUNK, wholeStream } from '../harness/service/raw-upstream.ts';

const FORM = 'application/x-www-form-urlencoded';
const HEAD = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
const hasty = HEAD.replace('/', '/hasty');
const clients: RawClient[] = [];
afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.destroy();
});

describe('a route that reads a body', () => {
  let stage: TestApp;
  const arrived: unknown[] = [];
  let failed: unknown[] = [];
  let lateReads = 0;
  /** How many listeners a request has after its body was refused. */
  const listenersLeft: number[] = [];
  const open = (bytes: string) => {
    const client = rawClient(stage.port, bytes);
    clients.push(client);
    return client;
  };
  beforeAll(async () => {
    stage = await startTestApp((app) => {
      const keep =
        (
          read: (req: Request, options: BodyOptions) => Promise<unknown>,
          timeoutMs: number,
          maxBytes = 2000,
        ): Steps =>
        async (req, res) => {
          arrived.push(await read(req, { maxBytes, timeoutMs }));
          res.end('read');
        };
      const text = async (req: Request, options: BodyOptions) => String((await readJson(req, options)).bytes);
      const form = async (req: Request, options: BodyOptions) => [...(await readForm(req, options))];
      app.get('/next', (_req, res) => void res.end('the next answer'));
      route(app, '/', { post: keep(text, 60_000) });
      route(app, '/large', { post: keep(text, 60_000, 20_000) });
      route(app, '/form', { post: keep(form, 60_000) });
      route(app, '/hasty', { post: keep(text, 50) });
      route(app, '/late', {
        async post(req, res) {
          lateReads += 1;
          await new Promise((resolve) => req.once('close', resolve));
          await new Promise(setImmediate);
          lateReads += 1;
          await keep(text, 10)(req, res);
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
    const client = open(`${HEAD}Content-Length: 2001\r\n\r\n`);
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
  });

  test('refuses one that is too large by its chunks while it arrives, and its connection can be used again', async () => {
    const part = `400\r\n${' '.repeat(1024)}\r\n`;
    const client = open(`${HEAD}Transfer-Encoding: chunked\r\n\r\n${part}${part}`);
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
    const client = open(hasty + rest);
    await client.closed;
    const answer = parseAnswer(client.text());
    expectProblem(answer, 408, 'request_timeout', { retryable: 'new message' });
    expect(answer.headers.connection).toBe('close');
    expect(arrived).toEqual([]);
  });

  test('gets one that arrives in parts when it is complete', async () => {
    const client = open(`${HEAD}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n`);
    // The head has been read alone.
    await client.waitFor('100 Continue');
    client.socket.write('"ab"');
    await client.waitFor('200 OK');
    expect(arrived).toEqual(['"ab"']);
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
          const client = open(`${HEAD.replace('/', '/large')}Transfer-Encoding: chunked\r\n\r\n`);
          let at = 0;
          for (const size of [...sizes, 1]) {
            await new Promise<unknown>((sent) => client.socket.write(chunk(body.slice(at, at + size)), sent));
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
    const client = open(`${HEAD.replace('/', '/late')}Content-Length: 20\r\n\r\n{`);
    await until(() => lateReads === 1);
    client.socket.destroy();
    // A wait for the body would have begun before that of the next request, and would end before it.
    await until(() => lateReads === 2);
    await open(`${hasty}Content-Length: 20\r\n\r\n{`).closed;
    expect([failed.length, arrived.length]).toEqual([1, 0]);
  });

  const post = (headers: Record<string, string>, body: string | Buffer = 'a=1') =>
    call(stage.port, '/form', { method: 'POST', headers, body });

  test.each([FORM, `${FORM}; charset=utf-8`, ` ${FORM.toUpperCase()} ;x`])(
    'gets a form of the type "%s" byte for byte',
    async (type) => {
      const body = Buffer.from([0x61, 0x3d, 0xff, 0x00, 0x26]);
      await post({ 'Content-Type': type, 'Content-Encoding': 'identity' }, body);
      await post({ 'Content-Type': type }, '');
      expect(arrived).toEqual([[['a', '\xff\0']], []]);
    },
  );

  test.each<Record<string, string>>([
    { 'Content-Type': 'application/json' },
    { 'Content-Type': `text/plain, ${FORM}` },
    { 'Content-Type': `${FORM}2` },
    { 'Content-Type': FORM, 'Content-Encoding': 'gzip' },
  ])('refuses a form with %j', async (headers) => {
    expectProblem(await post(headers), 415, 'unsupported_media_type');
    expectProblem(await post({ 'Content-Type': FORM }, 'a'.repeat(2001)), 413, 'body_too_large');
    expect(arrived).toEqual([]);
  });
});

describe('the body of a message', () => {
  let pair: RelayAndUpstream;
  beforeAll(async () => {
    pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
      MAX_BODY_BYTES: '1000',
      // Otherwise a message must be an object.
      CHANNELS: 'shared',
    });
  });
  afterAll(() => pair.close());
  const post = (headers: Record<string, string>, body: string | Buffer = MESSAGE) =>
    call(pair.relay.port, BOT_PATH, { method: 'POST', headers: { Cookie: pair.cookie, ...headers }, body });
  const last = () => pair.upstream.requests.at(-1);

  test.each([
    'application/json',
    'application/json; charset=utf-8',
    'application/json;charset=x',
    'Application/JSON ; v=1',
  ])('may be %s, and goes upstream as plain JSON', async (type) => {
    expect((await post({ 'Content-Type': type, 'Content-Encoding': 'Identity' })).status).toBe(200);
    expect([last()?.all('content-type'), last()?.all('content-encoding')]).toEqual([
      ['application/json'],
      [],
    ]);
  });

  test.each([
    [
      'white space, escapes, key order and large numbers',
      ' {"b" : "\\u00e9é",\r\n"a":12345678901234567890.10} ',
    ],
    ['a bare value', '0'],
    ['emoji', '"🤖"'],
    ['exactly the allowed size', `"${'x'.repeat(998)}"`],
  ])('with %s goes upstream byte for byte', async (_what, body) => {
    expect((await post({ 'Content-Type': 'application/json' }, body)).status).toBe(200);
    expect(String(last()?.body)).toBe(body);
  });

  const BODY = '{"text":"Grüße 🤖"}';
  const head = (...headers: string[]) =>
    [
      ...[`POST ${BOT_PATH} HTTP/1.1`, 'Host: a', `Cookie: ${pair.cookie}`, 'Content-Type: application/json'],
      ...[...headers, '', ''],
    ].join('\r\n');
  function open(bytes: string, allowHalfOpen = false): RawClient {
    const client = rawClient(pair.relay.port, bytes, { allowHalfOpen });
    clients.push(client);
    return client;
  }
  const TRAILED = Buffer.concat([
    Buffer.from(
      chunk(Buffer.from(BODY).subarray(0, 11)).toString('latin1').replace('\r\n', ';x=y\r\n'),
      'latin1',
    ),
    chunk(Buffer.from(BODY).subarray(11)),
    Buffer.from('0\r\nX-Api-Key: evil\r\n\r\n'),
  ]);

  test.each<[string, string[], Buffer]>([
    ['with a length', [`Content-Length: ${Buffer.byteLength(BODY)}`], Buffer.from(BODY)],
    [
      'in chunks, with extensions and trailers',
      ['Transfer-Encoding: chunked', 'Trailer: X-Api-Key'],
      TRAILED,
    ],
  ])('that comes byte by byte %s goes upstream complete, with its length', async (_how, headers, bytes) => {
    const client = open(head(...headers));
    for (const byte of bytes)
      await new Promise<unknown>((sent) => client.socket.write(Uint8Array.of(byte), sent));
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
    ['in a chunk with a negative size', '', `-7\r\n{"a":1}\r\n0\r\n\r\n`],
    ['in a chunk with a huge size', '', `fffffffffffffffff\r\n{"a":1}\r\n0\r\n\r\n`],
    ['in chunks with bare LF as line ends', '', `7\n{"a":1}\n0\n\n`],
  ])('%s never goes upstream', async (_how, header, body) => {
    const opened = pair.upstream.sockets.length;
    const client = open(head(header || 'Transfer-Encoding: chunked') + body, true);
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
    expect(client.text().match(/HTTP\/1\.1 /g)?.length ?? 0).toBeLessThanOrEqual(2);
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
