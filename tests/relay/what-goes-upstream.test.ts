import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  channelReplacer,
  replaceIds,
  takeUndecided,
  withClientId,
} from '../../src/relay/upstream/channel-names.ts';
import { userHintHeader } from '../../src/relay/upstream/upstream-target.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import {
  BOT_PATH,
  CANARY,
  LONG_NAMED_USER,
  OTHER_USER,
  startRelay,
  type TestRelay,
  USER,
} from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { inPieces, splits } from '../harness/service/event-streams.ts';
import {
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
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
      'has the names in FORWARD_QUERY only',
      { path: BOT_PATH + QUERY, environment: { FORWARD_QUERY: 'is_debug,trace' } },
      `${BOT_PATH}?is_debug=true`,
    ],
    ['begins with the path of the base URL', { base: '/v1//' }, `/v1${BOT_PATH}`],
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
    ...['a?b', 'a#b;c=d e+@:,$'].map((name): [string, Message, string] => [
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
    [
      'with its repeated keys, escapes and numbers',
      '{"z":1,"10":1,"z":9007199254740993,"a":1.0,"c":1e400,"__proto__":{"x":-0},"\\u0062":"\\u0061\\/\\ud800é😀\u2028"}',
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

describe('conversations', () => {
  const UPSTREAM_ID = /^[0-9a-f]{64}$/;
  const PATH = '/ns/acme/bot-provider/helper/message/sse';

  let pair: RelayAndUpstream;
  afterEach(() => pair.close());

  const idIn = ({ body }: RawRequest) =>
    (JSON.parse(String(body)) as { customChannelId: string }).customChannelId;

  /** Starts a service whose answers are made from the id that it knows; returns the ids of its requests. */
  async function start(
    answer: (socket: Socket, id: string) => void,
    environment: Record<string, string> = {},
  ) {
    const ids: string[] = [];
    pair = await startRelayAndUpstream((socket, request) => {
      const inQuery = new URL(request.requestLine.split(' ')[1] ?? '', 'http://a').searchParams;
      const id = inQuery.get('custom_channel_id') ?? idIn(request);
      ids.push(id);
      answer(socket, id);
    }, environment);
    return ids;
  }

  const send = (body: string, cookie = pair.cookie, path = PATH) =>
    call(pair.relay.port, path, {
      method: 'POST',
      body,
      headers: { Cookie: cookie, 'Content-Type': 'application/json' },
    });
  const message = (id: string) => JSON.stringify({ customChannelId: id, text: 'hi' });

  describe('with CHANNELS=scoped, the bot service', () => {
    test('gets an id of the user instead of the id of the page; every other byte stays', async () => {
      await start((socket, id) => void socket.write(wholeStream(`data: "${id}"\n\n`)));
      const [before, after] = ['{ "n":1e400,\t"customChannelId" : ', ' , "text":"\\u0061c1" }\n'];
      const answer = await send(`${before}"\\u0063\\u00311"${after}`);
      expect(answer.body).toBe('data: "c11"\n\n');
      const [request] = pair.upstream.requests;
      const upstream = String(request?.body).slice(before.length, -after.length);
      expect(JSON.parse(upstream)).toMatch(UPSTREAM_ID);
      expect(String(request?.body)).toBe(before + upstream + after);
      expect(request?.all('content-length')).toEqual([String(request?.body.length)]);
    });

    test('gets the same id for a message and its suspend, and another one for each user', async () => {
      const ids = await start((socket) => void socket.write(jsonAnswer('200 OK', {})));
      const other = await pair.relay.signIn(OTHER_USER);
      await send(message('c1'));
      await send(message('c1'), pair.cookie, `/generic${PATH}`);
      await suspend(pair);
      await send(message('c1'), other);
      await send(message('c2'));
      const [first, second, suspended, others, another] = ids;
      expect([second, suspended]).toEqual([first, first]);
      expect(new Set([first, others, another]).size).toBe(3);
    });

    test('gets a message without an id as it came', async () => {
      await start((socket) => void socket.write(wholeStream('data: 1\n\n')));
      const body = '{"text":"hi","payload":{"customChannelId":"x"}}';
      await send(body);
      expect(String(pair.upstream.requests[0]?.body)).toBe(body);
    });

    test.each([
      ['[{"customChannelId":"c1"}]', ''],
      ['{"customChannelId":"c1","custom_channel_id":"c2"}', ''],
      ['{}', '?custom_channel_id=c1'],
    ])('does not get %s with the query %j', async (body, query) => {
      const ids = await start((socket) => void socket.destroy());
      expectProblem(await send(body, pair.cookie, PATH + query), 400, 'invalid_conversation');
      expect(ids).toEqual([]);
    });
  });

  describe('with CHANNELS=scoped, the page gets its own id', () => {
    const quoted = JSON.stringify('my "one"');

    test('in an event that is too large to hold', async () => {
      const filler = 'x'.repeat(70_000);
      await start(
        (socket, id) =>
          void socket.write(wholeStream(`data: {"f":"${filler}","id":"${id}","g":"${filler}"}\n\n`)),
      );
      expect((await send(message('my "one"'))).body).toBe(
        `data: {"f":"${filler}","id":${quoted},"g":"${filler}"}\n\n`,
      );
    });

    test('in a stream that ends with a part of an event', async () => {
      await start(
        (socket, id) => void socket.write(wholeStream(`data: "${id}"\n\ndata: "${id.slice(0, 40)}`)),
      );
      const { body } = await send(message('c1'));
      expect(body).toMatch(/^data: "c1"\n\ndata: "[0-9a-f]{40}$/);
    });

    test('in a stream that is resumed, whose repeated events are known by what the service sent', async () => {
      const event = (name: string, id: string) =>
        `data: ${JSON.stringify({ eventType: `asgard.${name}`, requestId: 'r', customChannelId: id })}\n\n`;
      const kept = (id: string) =>
        `retry: 1\n\n${event('run.init', id)}id: 1\n${event('message.complete', id)}`;
      const tail = (id: string) => event('message.delta', id);
      const ids = await start((socket, id) => {
        if (ids.length === 1) socket.end(`${STREAM_HEAD}fff\r\n${kept(id)}${tail(id)}`);
        else socket.write(wholeStream(tail(id) + event('run.done', id)));
      });
      expect((await send(message('c1'))).body).toBe(kept('c1') + tail('c1') + event('run.done', 'c1'));
      expect(ids[1]).toBe(ids[0]);
    });

    test('in the JSON of a refusal, and of a suspend', async () => {
      await start(
        (socket, id) => void socket.write(jsonAnswer('404 Not Found', { channel: id, text: `about ${id}` })),
      );
      const refused = errorEventIn((await send(message('my "one"'))).body);
      expect(refused.upstream).toEqual({
        channel: 'my "one"',
        text: expect.stringMatching(/^about [0-9a-f]{64}$/),
      });
      const stopped = await suspend(pair, { query: `?custom_channel_id=${encodeURIComponent('my "one"')}` });
      expect(JSON.parse(stopped.body)).toMatchObject({ channel: 'my "one"' });
      expect(stopped.headers['content-length']).toBe(String(Buffer.byteLength(stopped.body)));
    });
  });

  test('with CHANNELS=shared, ids pass as they are, and unusable ones are refused', async () => {
    const ids = await start((socket, id) => void socket.write(wholeStream(`data: "${id}"\n\n`)), {
      CHANNELS: 'shared',
    });
    expect((await send(message('c1'))).body).toBe('data: "c1"\n\n');
    expectProblem(await send('{"customChannelId":""}'), 400, 'invalid_conversation');
    expect(ids).toEqual(['c1']);
  });

  test('CHANNEL_REALM makes one user of those of two ways to sign in', async () => {
    const idWith = async (environment: Record<string, string>) => {
      const ids = await start((socket) => void socket.write(plainAnswer('400 No', [])), environment);
      await send(message('c1'));
      await pair.close();
      return ids[0];
    };
    const own = await idWith({});
    expect(await idWith({})).toBe(own);
    const named = await idWith({ CHANNEL_REALM: 'staff' });
    expect(named).not.toBe(own);
    expect(await idWith({ CHANNEL_REALM: 'password' })).toBe(own);
    await start((socket) => void socket.destroy());
  });
});

describe('the replacing of ids', () => {
  const UPSTREAM = 'ab'.repeat(32);
  const NAMES = { client: 'my "one"\n', upstream: UPSTREAM };

  /** What comes out of the pieces, and what is held back before the end. */
  function replaced(pieces: readonly Buffer[], client = NAMES.client, upstream = UPSTREAM) {
    const replacer = channelReplacer({ client, upstream });
    // It writes into the bytes.
    const out = pieces.map((piece) => Buffer.from(replaceIds(replacer, Buffer.from(piece))));
    const rest = takeUndecided(replacer);
    return { text: Buffer.concat([...out, rest]).toString(), held: rest.length };
  }

  /** What texts are made of here: the id, what it can be confused with, and what can escape it. */
  const PARTS = [
    ...[`"${UPSTREAM}"`, UPSTREAM, `"${UPSTREAM.slice(2)}"`, `"x${UPSTREAM.slice(1)}"`, `"${UPSTREAM}x"`],
    ...[`"${UPSTREAM}`, `${UPSTREAM}"`, '"', '\\', '\\\\', 'ab', 'é, a word, and another', '{"n":1,', '\n'],
    // Another id of the same form, and the characters next to those of an id.
    ...[`"${'0f'.repeat(32)}"`, '/09:', '@AF[', '`afgz'],
  ];

  /** The text with `by` in the place of each id that no backslash escapes, found one character after the other. */
  function replacedNaively(text: string, by: string): string {
    const wanted = `"${UPSTREAM}"`;
    let out = '';
    let backslashes = 0;
    for (let at = 0; at < text.length; ) {
      const isFound = backslashes % 2 === 0 && text.startsWith(wanted, at);
      backslashes = text[at] === '\\' ? backslashes + 1 : 0;
      out += isFound ? by : text[at];
      at += isFound ? wanted.length : 1;
    }
    return out;
  }

  describe('the upstream id of a conversation', () => {
    test('is replaced with its quotes, and nothing else, in any text and wherever that is split', () => {
      const short = fc.array(fc.constantFrom(...PARTS), { maxLength: 12, size: 'max' });
      // Long texts are searched in another way.
      const long = fc.array(fc.constantFrom(...PARTS), { minLength: 60, maxLength: 200, size: 'max' });
      const client = fc.oneof(
        fc.constantFrom(...[1, 36, 63, 64, 65, 300].map((length) => 'c'.repeat(length))),
        fc.constant(NAMES.client),
      );
      fc.assert(
        fc.property(fc.oneof({ arbitrary: short, weight: 3 }, long), splits, client, (parts, lengths, id) => {
          const text = parts.join('');
          const { text: out } = replaced(inPieces(Buffer.from(text), lengths), id);
          expect(out).toBe(replacedNaively(text, JSON.stringify(id)));
        }),
        { numRuns: 2_000, examples: [[PARTS, [1], NAMES.client]] },
      );
    });

    test('is found wherever it stands, of any digits', () => {
      for (const digit of '0123456789abcdef') {
        const upstream = digit.repeat(64);
        for (let before = 0; before < 140; before += 1) {
          const said = (id: string) => `${'a'.repeat(before)}"${id}",\n`;
          expect(replaced([Buffer.from(said(upstream))], 'c', upstream).text).toBe(said('c'));
        }
      }
    });

    test('must be hexadecimal', () => {
      for (const upstream of ['', 'ab-cd', 'AB', 'abg'])
        expect(() => channelReplacer({ client: 'c', upstream })).toThrow(
          'The upstream id is not hexadecimal.',
        );
    });

    test('is never held back at the end of a line', () => {
      for (const end of ['\n', '\r', '\r\n', ''])
        expect(replaced([Buffer.from(`data: "${UPSTREAM}${end}`)]).held).toBe(end === '' ? 65 : 0);
    });

    test('and a backslash before it counts no more after the end of a stream', () => {
      const replacer = channelReplacer(NAMES);
      replaceIds(replacer, Buffer.from(`\\"${UPSTREAM}`));
      replaceIds(replacer, Buffer.from('\\"'));
      expect([takeUndecided(replacer).toString(), takeUndecided(replacer).length]).toEqual(['"', 0]);
      const next = replaceIds(replacer, Buffer.from(`"${UPSTREAM}"\n`)).toString();
      expect(next).toBe(`${JSON.stringify(NAMES.client)}\n`);
    });
  });

  test('a text is the upstream id only as a whole', () => {
    const mask = (text: string) => text.replace('x', '[secret]');
    const text = withClientId(() => NAMES, mask);
    expect([UPSTREAM, `${UPSTREAM}.`, 'x'].map(text)).toEqual([NAMES.client, `${UPSTREAM}.`, '[secret]']);
    expect(withClientId(() => undefined, mask)(`${UPSTREAM}x`)).toBe(`${UPSTREAM}[secret]`);
  });
});
