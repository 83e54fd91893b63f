import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

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

describe('a message is refused without a request to the bot service', () => {
  test.each([
    ['text/plain', { 'Content-Type': 'text/plain' }],
    ['a form', { 'Content-Type': 'application/x-www-form-urlencoded' }],
    ['a multipart form', { 'Content-Type': 'multipart/form-data; boundary=x' }],
    ['no type', {}],
    ['an empty type', { 'Content-Type': '' }],
    ['a type that begins like JSON', { 'Content-Type': 'application/jsonp' }],
    ['a JSON dialect', { 'Content-Type': 'application/ld+json' }],
    ['JSON as a parameter', { 'Content-Type': 'text/plain; application/json' }],
    ['two types', { 'Content-Type': 'text/plain, application/json' }],
    ['an encoding', { 'Content-Type': 'application/json', 'Content-Encoding': 'br' }],
    ['two encodings', { 'Content-Type': 'application/json', 'Content-Encoding': 'identity, gzip' }],
  ])('for %s', async (_what, headers) => {
    const before = pair.upstream.sockets.length;
    expectProblem(await post(headers), 415, 'unsupported_media_type');
    expect(pair.upstream.sockets).toHaveLength(before);
  });

  test('for a body that is encoded', async () => {
    const before = pair.upstream.sockets.length;
    const answer = await post(
      { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' },
      gzipSync(MESSAGE),
    );
    expectProblem(answer, 415, 'unsupported_media_type');
    expect(pair.upstream.sockets).toHaveLength(before);
  });

  test.each([
    ['incomplete JSON', '{"text":'],
    ['JSON and more', '{} {}'],
    ['no bytes', ''],
    ['white space', ' \n'],
    ['NaN', 'NaN'],
    ['a single quote', "{'text':1}"],
    ['invalid UTF-8 in a string', Buffer.from([0x22, 0xc3, 0x28, 0x22])],
    ['a lone surrogate in UTF-8', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
    ['UTF-16', Buffer.from('{}', 'utf16le')],
    ['a byte order mark', Buffer.from('\ufeff{}')],
  ])('for a body with %s', async (_what, body) => {
    const before = pair.upstream.sockets.length;
    expectProblem(await post({ 'Content-Type': 'application/json' }, body), 400, 'invalid_json');
    expect(pair.upstream.sockets).toHaveLength(before);
  });

  test('if its client leaves in the middle of the body', async () => {
    const before = pair.upstream.sockets.length;
    const whole = rawMessage({ cookie: pair.cookie, headers: ['X-Request-Id: left-mid-body-1'] });
    const client = rawClient(pair.relay.port, whole.slice(0, -3));
    client.socket.once('connect', () => setImmediate(() => client.socket.resetAndDestroy()));
    expect(await pair.relay.logLine(({ requestId }) => requestId === 'left-mid-body-1')).toMatchObject({
      status: 499,
      outcome: 'client_closed',
    });
    expect(pair.upstream.sockets).toHaveLength(before);
  });
});

describe('a message is accepted', () => {
  test.each([
    'application/json',
    'application/json; charset=utf-8',
    'application/json;charset=x',
    'Application/JSON ; v=1',
  ])('as %s, and goes upstream as plain JSON', async (type) => {
    const answer = await post({ 'Content-Type': type, 'Content-Encoding': 'Identity' });
    expect(answer.status).toBe(200);
    expect(pair.upstream.requests.at(-1)?.all('content-type')).toEqual(['application/json']);
    expect(pair.upstream.requests.at(-1)?.all('content-encoding')).toEqual([]);
  });

  test.each([
    [
      'white space, escapes, key order and large numbers',
      ' {"b" : "\\u00e9é",\r\n"a":12345678901234567890.10} ',
    ],
    ['a bare value', '0'],
    ['emoji', '"🤖"'],
  ])('with %s, byte for byte', async (_what, body) => {
    expect((await post({ 'Content-Type': 'application/json' }, body)).status).toBe(200);
    expect(pair.upstream.requests.at(-1)?.body.toString('utf8')).toBe(body);
  });

  test('with exactly the allowed size, and not with one byte more', async () => {
    const body = `"${'x'.repeat(998)}"`;
    expect((await post({ 'Content-Type': 'application/json' }, body)).status).toBe(200);
    expect(pair.upstream.requests.at(-1)?.body).toHaveLength(1000);
    const before = pair.upstream.requests.length;
    expectProblem(await post({ 'Content-Type': 'application/json' }, `${body} `), 413, 'body_too_large');
    expect(pair.upstream.requests).toHaveLength(before);
  });
});
