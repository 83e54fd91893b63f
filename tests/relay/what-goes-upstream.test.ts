import { createHash } from 'node:crypto';
import { afterAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { userHintHeader } from '../../src/relay/upstream/upstream-target.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import {
  BOT_PATH,
  CANARY,
  LONG_NAMED_USER,
  startRelay,
  type TestRelay,
  USER,
} from '../harness/relay/relay.ts';
import {
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

interface Started {
  readonly upstream: RawUpstream;
  readonly relay: TestRelay;
  readonly cookie: string;
}
/** One relay for each environment and base URL. */
const started = new Map<string, Promise<Started>>();
afterAll(async () => {
  for (const one of started.values()) {
    const { relay, upstream } = await one;
    await relay.close();
    await upstream.close();
  }
});
function relayWith(environment: Record<string, string> = {}, base = ''): Promise<Started> {
  const name = JSON.stringify([environment, base]);
  const start = async () => {
    const upstream = await startRawUpstream(
      (socket, { requestLine }) =>
        void socket.write(
          requestLine.includes('/sse') ? wholeStream('data: 1\n\n') : plainAnswer('204 No Content', []),
        ),
    );
    const relay = await startRelay(upstream.url + base, environment);
    return { upstream, relay, cookie: await relay.signIn() };
  };
  const one = started.get(name) ?? start();
  started.set(name, one);
  return one;
}

interface Message {
  readonly environment?: Record<string, string>;
  readonly base?: string;
  readonly path?: string;
  readonly headers?: readonly string[];
  readonly body?: string;
}
/** The one request that a message becomes. */
async function sent({ environment, base, path = BOT_PATH, headers = [], body = '{"text":"hi"}' }: Message) {
  const { upstream, relay, cookie } = await relayWith(environment, base);
  upstream.requests.length = 0;
  const client = rawClient(relay.port, rawMessage({ cookie, path, headers: [...headers], body }));
  await client.waitFor(LAST_CHUNK);
  client.socket.destroy();
  expect(upstream.requests).toHaveLength(1);
  return { ...(upstream.requests[0] as RawRequest), answer: client.text(), host: new URL(upstream.url).host };
}

/** All headers that go upstream if the client sends none that are passed on. */
const OWN_HEADERS = [
  ...['accept', 'accept-encoding', 'connection', 'content-length', 'content-type', 'host'],
  ...['x-api-key', 'x-request-id'],
];
const EVIL = [
  ...['Authorization: Bearer evil', 'Proxy-Authorization: Basic evil', 'Cookie2: evil'],
  ...['X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3', 'X-Api_Key: evil-4'],
  ...['X-Forwarded-For: 6.6.6.6', 'X-Forwarded-Host: evil.example', 'X-Forwarded-Proto: https'],
  ...['X-Forwarded-Port: 666', 'Forwarded: for=evil', 'X-Real-IP: 6.6.6.6', 'Via: 1.1 evil'],
  ...['Upgrade: evil', 'HTTP2-Settings: evil', 'Connection: upgrade', 'Keep-Alive: timeout=666'],
  ...['TE: trailers', 'Trailer: evil', 'Origin: http://app.example.com', 'Referer: http://evil.example'],
  ...['X-Asgard-User: evil', 'User-Agent: evil', 'Accept-Language: evil', 'X-HTTP-Method-Override: evil'],
  ...['Accept-Encoding: evil', 'X-Request-Id: evil!', 'Content-Language: evil'],
  ...['X-ASGARD-USER-IDENTITY-HINT: evil', 'x-asgard-user-identity-hint: evil', 'Idempotency-Key: evil'],
];

describe('of the headers of a client,', () => {
  test.each([
    ['credentials, keys and those of proxies do not go upstream', EVIL],
    ['Expect: 100-continue changes nothing', ['Expect: 100-continue', 'X-API-KEY: evil']],
    ['an unknown Expect changes nothing', ['Expect: evil', 'X-API-KEY: evil']],
    [
      'x-api-key in Connection removes no key',
      ['Connection: x-api-key, close, content-type', 'X-API-KEY: evil'],
    ],
  ])('%s', async (_title, lines) => {
    const { headers, all, host, answer } = await sent({ headers: lines });
    expect(headers.map(([name]) => name.toLowerCase()).sort()).toEqual(OWN_HEADERS);
    expect(['x-api-key', 'connection', 'content-type', 'host', 'accept-encoding'].map(all)).toEqual([
      ...[[CANARY.key], ['keep-alive'], ['application/json'], [host], ['identity']],
    ]);
    expect(JSON.stringify(headers)).not.toContain('evil');
    if (lines[0] === 'Expect: 100-continue')
      expect(answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  });

  test('those that the bot service needs go upstream unchanged', async () => {
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const { all } = await sent({
      headers: [
        ...['Accept: text/event-stream, */*;q=0.1', 'Last-Event-ID: 7-b', 'X-Request-Id: request-0001'],
        `traceparent: ${traceparent}`,
      ],
    });
    expect(['accept', 'last-event-id', 'x-request-id', 'traceparent'].map(all)).toEqual([
      ...[['text/event-stream, */*;q=0.1'], ['7-b'], ['request-0001'], [traceparent]],
    ]);
  });

  test.each(['Last-Event-ID:', 'Last-Event-ID: \t '])(
    'an empty one (%j) does not go upstream',
    async (line) => {
      const { all } = await sent({ headers: [line, 'Accept:'] });
      expect([all('last-event-id'), all('accept')]).toEqual([[], ['text/event-stream']]);
    },
  );
});

const NAME = 'X-ASGARD-USER-IDENTITY-HINT';
const sha256 = (text: string) => createHash('sha256').update(text, 'utf8').digest('hex');

describe('USER_HEADER', () => {
  test.each([
    ['the user of the session', USER, USER.name],
    ['the hash of a user who does not fit into it', LONG_NAMED_USER, sha256(LONG_NAMED_USER.name)],
  ])('carries %s with a message and a suspend, and nothing of the browser', async (_who, user, value) => {
    const { relay, upstream } = await relayWith({ USER_HEADER: NAME });
    upstream.requests.length = 0;
    const Cookie = await relay.signIn(user);
    const evil = { [NAME]: 'evil', 'X_Asgard-User-Identity_Hint': 'evil' };
    await (await relay.send(Cookie, { headers: evil })).text();
    const path = `${BOT_PATH.replace('/sse', '/suspend')}?custom_channel_id=c1`;
    expect((await call(relay.port, path, { method: 'POST', headers: { Cookie, ...evil } })).status).toBe(204);
    expect(upstream.requests).toHaveLength(2);
    for (const { headers } of upstream.requests) {
      const hints = headers.filter(([name]) => /hint/i.test(name));
      expect(hints).toEqual([['x-asgard-user-identity-hint', value]]);
      expect(JSON.stringify(headers)).not.toContain('evil');
    }
  });

  test('is any user id that fits into a header, and the hash of every other one', () => {
    const fits = /^[!-~]{1,128}$/;
    const visible = fc.string({ unit: fc.constantFrom(...'ada!~,;="-:'), maxLength: 140, size: 'max' });
    const ids = fc.oneof(visible, fc.string({ unit: 'binary', maxLength: 20 }));
    const examples = [
      '',
      'a b',
      ' a',
      'a\r\nX-Evil: 1',
      '\u007f',
      '\t',
      'ａ',
      'a'.repeat(128),
      'a'.repeat(129),
    ];
    fc.assert(
      fc.property(ids, (id) => {
        const value = fits.test(id) ? id : sha256(id);
        expect(userHintHeader(NAME, id)).toEqual({ 'x-asgard-user-identity-hint': value });
      }),
      { examples: examples.map((id): [string] => [id]) },
    );
    expect(userHintHeader(undefined, 'ada')).toEqual({});
  });
});

const QUERY = '?is_debug=true&api_key=evil&IS_DEBUG=evil&x.is_debug=evil&debug=evil&is_debug%20=evil';
const lineOf = async (message: Message) => (await sent(message)).requestLine;
const any = { FORWARD_QUERY: 'is_debug', BOTS: '*/*' };
const pathOf = (name: string) =>
  `/generic/ns/${encodeURIComponent(name)}/bot-provider/${encodeURIComponent(name)}/message/sse`;

describe('the target of a message', () => {
  test.each<[string, Message, string]>([
    ['has no query without FORWARD_QUERY', { path: BOT_PATH + QUERY }, BOT_PATH],
    [
      'has no query without a name in FORWARD_QUERY',
      { path: BOT_PATH + QUERY, environment: { FORWARD_QUERY: 'other' } },
      BOT_PATH,
    ],
    [
      'has the names in FORWARD_QUERY only',
      { path: BOT_PATH + QUERY, environment: { FORWARD_QUERY: 'is_debug,trace' } },
      `${BOT_PATH}?is_debug=true`,
    ],
    ...['/v1', '/v1/', '/v1//'].map((base): [string, Message, string] => [
      `begins with the path of the base URL ${base}`,
      { base },
      `/v1${BOT_PATH}`,
    ]),
    ...['/ns', '/generic/ns'].map((shape): [string, Message, string] => [
      `has the shape ${shape} of the request, and no BASE_PATH`,
      {
        path: `/chat${shape}/acme/bot-provider/helper/message/sse`,
        environment: { BASE_PATH: '/chat' },
      },
      `${shape}/acme/bot-provider/helper/message/sse`,
    ]),
    [
      'has an encoded text like a query in its path, and no query',
      { path: '/generic/ns/a&is_debug=1&b/bot-provider/helper/message/sse', environment: any },
      `/generic/ns/${encodeURIComponent('a&is_debug=1&b')}/bot-provider/helper/message/sse`,
    ],
    ...['a?b', 'a#b', 'a;b=c', 'a b+c', '@:,$'].map((name): [string, Message, string] => [
      `is the same, without a query, if a name in it is ${name}`,
      { path: pathOf(name), environment: any },
      pathOf(name),
    ]),
  ])('%s', async (_title, message, target) => {
    expect(await lineOf(message)).toBe(`POST ${target} HTTP/1.1`);
  });

  test('has all values of a name in FORWARD_QUERY, which are encoded', async () => {
    const query = '?trace=a%26evil%3D1%23&x=1&is%5Fdebug=&trace=%0d%0aevil:%201&trace=%F0%9F%98%80';
    const line = await lineOf({ path: BOT_PATH + query, environment: { FORWARD_QUERY: 'is_debug,trace' } });
    expect(line).toMatch(/^POST [\x21-\x7e]+ HTTP\/1\.1$/);
    expect([...new URL(line.split(' ')[1] ?? '', 'http://service').searchParams]).toEqual([
      ...[
        ['trace', 'a&evil=1#'],
        ['is_debug', ''],
        ['trace', '\r\nevil: 1'],
        ['trace', '😀'],
      ],
    ]);
  });

  test('shares the budget of its bot in both shapes', async () => {
    const budget = { RATE_LIMIT: '1', RATE_WINDOW_MS: '3600000', RATE_MAX_WAIT_MS: '0' };
    const { relay, cookie } = await relayWith(budget);
    const send = (shape: string) =>
      call(relay.port, `${shape}/acme/bot-provider/helper/message/sse`, {
        ...{ method: 'POST', body: '{}' },
        headers: { Cookie: cookie, 'Content-Type': 'application/json' },
      });
    expect((await send('/ns')).status).toBe(200);
    expectProblem(await send('/generic/ns'), 429, 'rate_limited');
  });
});

describe('the body of a message goes upstream byte for byte', () => {
  test.each([
    ['with its white space', ' {\t"text" :\r\n"a" ,\n\n"b":[ ] } \n'],
    ['with its order and repeated keys', '{"z":1,"10":1,"a":2,"2":3,"z":4,"__proto__":{"x":1}}'],
    ['with its escapes', '{"a":"\\u0061\\/\\ud83d\\ude00\\ud800\\u2028","\\u0062":"é😀\u2028"}'],
    [
      'with its numbers',
      '{"a":9007199254740993,"b":1.0,"c":1e400,"d":-0,"e":0.1000000000000000055511151231}',
    ],
    ['as a string instead of an object', ' "text"'],
  ])('%s', async (_name, body) => {
    const { body: arrived, all } = await sent({ body, environment: { CHANNELS: 'shared' } });
    expect(String(arrived)).toBe(body);
    expect(all('content-length')).toEqual([String(Buffer.byteLength(body))]);
    expect(all('transfer-encoding')).toEqual([]);
  });

  test('when it arrives in several chunks', async () => {
    const { upstream, relay, cookie } = await relayWith();
    const body = `{"text" : "${'😀x'.repeat(50_000)}"}`;
    const init = { body: new Blob([body]).stream(), duplex: 'half' } as RequestInit;
    await (await relay.send(cookie, init)).text();
    expect(upstream.requests.at(-1)?.body.equals(Buffer.from(body))).toBe(true);
  });
});
