import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { textOf } from '../../src/client/channel/channel-state.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { type BotClientOptions, createBotClient } from '../../src/client/session/bot-client.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { allOf, isLoaded, refuseUnhandledRejections } from '../harness/clients/channels.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { type TestOptions, testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

refuseUnhandledRejections();

const BOT = { namespace: 'acme', botProviderName: 'helper' };
let upstream: RawUpstream;
beforeAll(async () => {
  upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
});
afterAll(() => upstream.close());
beforeEach(() => {
  upstream.requests.length = 0;
});
let relay: TestRelay | undefined;
afterEach(async () => {
  await relay?.close();
  relay = undefined;
});
async function start(environment: Record<string, string> = {}): Promise<TestRelay> {
  relay = await startRelay(upstream.url, environment);
  return relay;
}

async function tryAll(options: TestOptions): Promise<void> {
  const client = testClient(options);
  await client.signIn(USER.name, USER.password);
  expect(await readAll(client.send('hi'))).toMatchObject({ events: [{ raw: 1 }], error: undefined });
  expect(await client.session()).toMatchObject({ user: { name: USER.name } });
  await client.signOut();
  expect(await client.session()).toBeNull();
}

describe('baseUrl may be', () => {
  const origin = () => `${relay?.url}`;
  test.each<[string, string, () => string]>([
    ['an origin', '', origin],
    ['an origin with a base path and slashes at its end', '/chat-api', () => `${origin()}/chat-api//`],
    ['a base path of the page’s origin', '/chat-api', () => '/chat-api'],
    ['nothing: the page’s origin', '', () => ''],
    ['a slash: the page’s origin', '', () => '/'],
  ])('%s', async (_, BASE_PATH, baseUrl) => {
    relay = await start({ BASE_PATH });
    // As a page resolves a path. With two slashes at the beginning it would name a host.
    const inPage: typeof fetch = (path, init) => fetch(new URL(String(path), `${origin()}/page/of/it`), init);
    await tryAll({ baseUrl: baseUrl(), ...BOT, fetch: inPage });
  });
});

describe('a baseUrl that is wrong', () => {
  const bot = { ...BOT };
  const wrong = expect.objectContaining({
    name: 'TypeError',
    message: expect.stringMatching(/^baseUrl .*https:/),
  });

  test.each([
    ...[null, new URL('http://localhost:3000'), 'chat.example.com'],
    ...['ws://localhost', 'http:///x', 'https://a b'],
  ])('is refused at once: %p', (baseUrl) => {
    expect(() => createBotClient({ baseUrl: baseUrl as string, ...bot })).toThrow(wrong);
  });

  test.each([undefined, '', '/chat-api'])(
    'is refused by the first call outside of a page: %p',
    async (baseUrl) => {
      // Not before, since a server may render the page.
      const client = createBotClient({ baseUrl, ...bot });
      await expect(client.session()).rejects.toEqual(wrong);
      expect(await readAll(client.send('hi'))).toEqual({ events: [], error: wrong });
    },
  );
});

test('the bot is named in one text, or its namespace and its name apart', async () => {
  relay = await start();
  await tryAll({ baseUrl: relay.url, ...BOT });
  const client = createBotClient({ baseUrl: relay.url, bot: 'acme/helper', expert: { cookies: 'keep' } });
  await client.signIn(USER.name, USER.password);
  expect(await readAll(client.send('hi'))).toMatchObject({ events: [{ raw: 1 }], error: undefined });
  expect(upstream.requests[1]?.requestLine).toBe(upstream.requests[0]?.requestLine);
});

test.each(['helper', 'acme/', 'acme/helper/more', undefined])(
  'a bot with another form of name is refused at once: %p',
  (bot) => {
    const message = 'bot must be the namespace and the name of a bot: { bot: "namespace/name" }.';
    expect(() => createBotClient({ baseUrl: upstream.url, bot: bot as string })).toThrow(
      new TypeError(message),
    );
  },
);

describe('the namespace and the name of the bot', () => {
  test('reach the bot service with any characters', async () => {
    relay = await start({ BOTS: '*/*' });
    const [namespace, botProviderName] = ['ä & b+c', 'what?is#this=100 🦊'];
    await tryAll({ baseUrl: relay.url, namespace, botProviderName });
    const path = /^POST \/generic\/ns\/([^/?#]+)\/bot-provider\/([^/?#]+)\/message\/sse HTTP/;
    const names = path.exec(upstream.requests[0]?.requestLine ?? '')?.slice(1);
    expect(names?.map(decodeURIComponent)).toEqual([namespace, botProviderName]);
  });

  test('stay one path segment each', async () => {
    const settings = { namespace: 'a/../b', botProviderName: '%2F' };
    await readAll(createBotClient({ baseUrl: upstream.url, ...settings }).send('hi'));
    expect(upstream.requests[0]?.requestLine).toBe(
      'POST /generic/ns/a%2F..%2Fb/bot-provider/%252F/message/sse HTTP/1.1',
    );
  });
});

test('the option fetch is used for every call, with credentials and a signal', async () => {
  relay = await start();
  const { url } = relay;
  const calls: [string, string | undefined, boolean][] = [];
  await tryAll({
    baseUrl: '/x',
    namespace: 'acme',
    botProviderName: 'helper',
    fetch(input, init) {
      calls.push([String(input), init?.credentials, init?.signal instanceof AbortSignal]);
      return fetch(url + String(input).slice(2), init);
    },
  });
  expect(calls).toEqual([
    ['/x/auth/login', 'include', false],
    ['/x/generic/ns/acme/bot-provider/helper/message/sse', 'include', true],
    ['/x/auth/session', 'include', false],
    ['/x/auth/logout', 'include', false],
    ['/x/auth/session', 'include', false],
  ]);
});

/** As the development server of Vite: its page for each GET that wants anything, and 404 without a body for a POST. */
const server = createServer((req, res) => {
  if (req.method !== 'GET' || req.url?.startsWith('/none')) res.writeHead(404).end();
  else if (req.url?.startsWith('/down')) res.writeHead(502, { 'Content-Type': 'text/html' }).end('<h1>Bad');
  else
    res
      .writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' })
      .end('<!doctype html><title>My page</title>');
});
let url: string;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())));

/** What the error of a call says: its code, to the user, and to the author of the page. */
const saidBy = (called: Promise<unknown>) =>
  called.then(String, ({ code, message, hint }) => [code, message, hint]);
const notOfRelay = (path: string, what: string) => {
  const message = `The server answered ${url}${path} with ${what}.`;
  const hint = `${message} It is not the relay: add /auth, /client and /generic to its proxy.`;
  return ['unexpected_response', message, hint];
};

const warned: unknown[] = [];
beforeEach(() => void jest.spyOn(console, 'warn').mockImplementation((text) => void warned.push(text)));
afterEach(() => {
  jest.restoreAllMocks();
  warned.length = 0;
});

describe('a page whose development server does not forward to the relay', () => {
  const client = (path = '') => testClient({ baseUrl: url + path, ...BOT });

  test('is told which path was answered with HTML', async () => {
    const said = notOfRelay('/auth/session', '200 and HTML');
    expect(await saidBy(client().session())).toEqual(said);
    expect(warned).toEqual([said[2]]);
  });

  test('finds each hint in the console once', async () => {
    const said = notOfRelay('/none/auth/session', '404');
    for (const _ of [1, 2]) expect(await saidBy(client('/none').session())).toEqual(said);
    expect(warned).toEqual([said[2]]);
  });

  test('is told which path was not found', async () => {
    expect(await saidBy(client().signIn('ada', 'x'))).toEqual(notOfRelay('/auth/login', '404'));
    const { error } = await readAll(client().send('hi'));
    const path = '/generic/ns/acme/bot-provider/helper/message/sse';
    expect(await saidBy(Promise.reject(error))).toEqual(notOfRelay(path, '404'));
  });

  test('is told nothing of its proxy if a load balancer says that the relay is away', async () => {
    expect(await saidBy(client('/down').session())).toEqual([
      'unexpected_response',
      `The server answered ${url}/down/auth/session with 502 and HTML.`,
      undefined,
    ]);
    expect(warned).toEqual([]);
  });
});

describe('a page with a name of a bot that the relay does not have', () => {
  test('is told which bot that is', async () => {
    const relay = await start();
    const client = testClient({ baseUrl: relay.url, ...BOT, botProviderName: 'helpr' });
    await client.signIn(USER.name, USER.password);
    const said = 'The relay has no bot acme/helpr: look at its BOTS.';
    const hint = ['unknown_bot', 'There is no such bot here.', said];
    const { error } = await readAll(client.send('hi'));
    expect(await saidBy(Promise.reject(error))).toEqual(hint);
    const channel = createChannel(client, { id: 'a' });
    expect(await channel.feedback('x', 'GOOD')).toBe(false);
    // A snapshot changes in the next frame.
    await until(() => channel.getSnapshot().error !== undefined);
    expect(await saidBy(Promise.reject(channel.getSnapshot().error))).toEqual(hint);
    expect(warned).toEqual([said]);
  });
});

const REFUSED = 'In a browser, leave out apiKey, and use the relay: it adds the key.';

let service: BotService;
beforeAll(async () => {
  const speed = { wordMs: 5, silenceMs: 60_000 };
  service = await startBotService({ keys: [CANARY.key], speed, limit: 1_000 });
});
afterAll(() => service.close());

/** A client of a bot of the service, with what it asks for: `METHOD path` and the last event id. */
function direct(botProviderName: string, options: Partial<TestOptions> = {}) {
  const asked: string[] = [];
  const own: typeof fetch = (url, init = {}) => {
    const headers = new Headers(init.headers);
    expect(headers.has('Cookie')).toBe(false);
    const { pathname } = new URL(String(url));
    const what = [init.method ?? 'GET', pathname.split(`/${botProviderName}/`).at(-1)];
    asked.push([...what, headers.get('Last-Event-ID')].filter(Boolean).join(' '));
    return fetch(url, init);
  };
  const baseUrl = service.url.origin;
  const bot = { baseUrl, namespace: 'demo', botProviderName, apiKey: CANARY.key, fetch: own };
  return { client: testClient({ cookies: undefined, ...bot, ...options }), asked };
}

const AsyncFunction = (async () => {}).constructor as new (
  ...parts: string[]
) => (...values: unknown[]) => Promise<unknown>;

const fail = (message: string) => {
  throw new Error(message);
};

const textIn = (events: readonly { readonly raw: unknown }[]) =>
  events.map(({ raw }) => Object(raw).fact?.messageDelta?.message.text ?? '').join('');

describe('a client with the key of the bot service', () => {
  test('sends a message and streams the answer', async () => {
    const { client, asked } = direct('echo');
    const { events, error } = await readAll(client.send('Hello there'));
    expect(error).toBeUndefined();
    expect(textIn(events)).toBe('You said: Hello there');
    expect(events.at(-1)?.eventType).toBe('asgard.run.done');
    expect(asked).toEqual(['POST message/sse']);
  });

  test('resumes an answer that breaks off, at the event that came last', async () => {
    const { client, asked } = direct('resume');
    const { events, error } = await readAll(client.send('Go on'));
    expect(error).toBeUndefined();
    expect(events.filter(({ eventType }) => eventType === 'asgard.message.complete')).toHaveLength(2);
    // Only a relay has runs that can be joined.
    const [sent, joined, resumed, ...more] = asked;
    expect([sent, joined?.replace(/ \d+$/, ''), more]).toEqual(['POST message/sse', 'GET message/run', []]);
    expect(resumed).toMatch(/^POST message\/sse \d+$/);
  });

  test('has channels: their messages, their history, and their stop, without a session', async () => {
    const { client, asked } = direct('echo');
    await createChannel(client, { id: 'one' }).send('Hello');
    expect(asked.at(-1)).toBe('POST message/sse');
    const again = createChannel(direct('echo').client, { id: 'one' });
    again.subscribe(() => {});
    await isLoaded(again);
    expect(allOf(again)).toEqual(['user: Hello', 'bot: You said: Hello']);
    expect(await again.reset()).toBe(true);

    const slow = createChannel(direct('slow').client, { id: 'two' });
    const answer = slow.send('Think');
    await until(() => allOf(slow).some((line) => line.includes('Let me think about that.')));
    await slow.stop();
    expect((await answer)?.state).toBe('stopped');
    expect(slow.getSnapshot().error).toBeUndefined();
  });

  test('is made and asked as in the document', async () => {
    const document = readFileSync(new URL('../../docs/service.md', import.meta.url), 'utf8');
    const code = codeOf(document, 'direct').replace(/^import .*$/gm, '');
    const run = new AsyncFunction('createBotClient', 'key', 'show', 'showError', code);
    const shown: string[] = [];
    const create = ({ apiKey = '' }: BotClientOptions) => direct('echo', { apiKey }).client;
    await run(create, CANARY.key, (text: string) => shown.push(text), fail);
    expect(shown.join('')).toBe('You said: How many days of leave do I have?');
  });

  test('asks nobody who is signed in', async () => {
    const { client, asked } = direct('echo');
    expect(await client.session()).toMatchObject({ user: { id: 'api-key' } });
    expect(asked).toEqual([]);
  });

  test('has the file of a message uploaded', async () => {
    const { client } = direct('echo');
    const channel = createChannel(client, { id: 'one' });
    const file = await channel.upload(new File(['x'], 'notes.txt'), { onProgress() {} });
    const answer = await channel.send({ text: 'Read this', files: file ? [file] : [] });
    expect(answer && textOf(answer)).toBe('You said: Read this You sent: notes.txt');
  });

  test('waits for an answer as long as the service may take, though it sends no heartbeat', async () => {
    let stream: ReadableStreamDefaultController<Uint8Array> | undefined;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        stream = controller;
      },
    });
    const headers = { 'Content-Type': 'text/event-stream' };
    const { client } = direct('echo', { fetch: async () => new Response(body, { headers }) });
    jest.useFakeTimers();
    try {
      const reading = readAll(client.send('Think for long'));
      await jest.advanceTimersByTimeAsync(180_000);
      stream?.enqueue(new TextEncoder().encode('data: 1\n\n'));
      stream?.close();
      expect(await reading).toMatchObject({ events: [{ raw: 1 }], error: undefined });
    } finally {
      jest.useRealTimers();
    }
  });
});

/** What a program that prints or stores `value` would show. */
const shownOf = (value: unknown) =>
  [inspect(value, { depth: 9, showHidden: true }), JSON.stringify(value), String(value)].join('\n');

describe('the key', () => {
  test('that the service refuses is an error that says so, and the message is sent once', async () => {
    const apiKey = CANARY.secondKey;
    const { client, asked } = direct('echo', { apiKey });
    const { error } = await readAll(client.send('Hello'));
    expect(error).toMatchObject({
      name: 'RelayError',
      message: 'The bot service has refused the API key.',
      ...{ code: 'upstream_key_rejected', status: 401, retryable: false },
    });
    expect(asked).toEqual(['POST message/sse']);
    expect(shownOf(error)).not.toContain(apiKey);
  });

  test('is in no client, channel or error, whatever fails', async () => {
    const echoing: typeof fetch = async (_url, init) => {
      const key = new Headers(init?.headers).get('X-API-KEY');
      return Response.json({ error: { code: key, message: `no ${key}` } }, { status: 400 });
    };
    const failing = async () => {
      throw new TypeError('fetch failed');
    };
    for (const own of [echoing, failing]) {
      const { client } = direct('echo', { fetch: own });
      const channel = createChannel(client, { id: 'one' });
      await channel.send('Hello');
      const { error } = channel.getSnapshot();
      expect(error).toBeDefined();
      expect(shownOf([client, channel.getSnapshot(), error])).not.toContain(CANARY.key);
    }
  });

  test.each(['', ' key', 'one\ntwo', 'ké', `${CANARY.key}\n`])(
    'cannot be %j, and is not repeated',
    (apiKey) => {
      const make = () => direct('echo', { apiKey });
      expect(make).toThrow(new TypeError('apiKey must be printable ASCII without spaces.'));
    },
  );

  test('needs the address of the bot service', () => {
    const make = () => createBotClient({ bot: 'demo/echo', apiKey: CANARY.key });
    expect(make).toThrow(new TypeError('With apiKey, baseUrl must be the address of the bot service.'));
  });

  test('follows no redirect', async () => {
    let heard = 0;
    const other = await startFakeLoadBalancer({
      answer(_req, res) {
        heard += 1;
        res.end();
        return true;
      },
    });
    const first = await startFakeLoadBalancer({
      answer(_req, res) {
        res.writeHead(307, { Location: other.url }).end();
        return true;
      },
    });
    try {
      const { client } = direct('echo', { baseUrl: first.url });
      expect((await readAll(client.send('Hello'))).error).toMatchObject({ code: 'unreachable' });
      expect(heard).toBe(0);
    } finally {
      await first.close();
      await other.close();
    }
  });

  test.each(['document', 'location'])('is refused where there is a %s, as in a page or a worker', (name) => {
    Object.assign(globalThis, { [name]: {} });
    try {
      expect(() => direct('echo')).toThrow(new TypeError(REFUSED));
    } finally {
      Reflect.deleteProperty(globalThis, name);
    }
  });
});
