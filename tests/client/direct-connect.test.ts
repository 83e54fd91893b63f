import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { textOf } from '../../src/client/channel/channel-state.ts';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import { type BotClientOptions, createBotClient } from '../../src/client/session/bot-client.ts';
import { type BotService, startBotService } from '../../src/service/bot-service.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { bundleClient } from '../harness/browser/react-page.ts';
import { allOf, isLoaded, refuseUnhandledRejections } from '../harness/clients/channels.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { type TestOptions, testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { CANARY } from '../harness/relay/relay.ts';

refuseUnhandledRejections();

const REFUSED = 'In a browser, leave out apiKey, and use the relay: it adds the key.';

let service: BotService;
beforeEach(async () => {
  service = await startBotService({
    keys: [CANARY.key],
    speed: { wordMs: 5, silenceMs: 60_000 },
    limit: 1_000,
  });
});
afterEach(() => service.close());

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

describeInChromium('in a page', () => {
  const chromium = oneChromium();

  test('the client refuses the key, and names the relay', async () => {
    const script = await bundleClient(`
      import { createBotClient } from './session/bot-client.ts';
      try {
        createBotClient({ baseUrl: '', namespace: 'demo', botProviderName: 'echo', apiKey: 'key-1' });
      } catch (error) {
        document.title = String(error);
      }`);
    const front = await startFakeLoadBalancer({
      answer(req, res) {
        const isPage = req.url === '/';
        res.setHeader('Content-Type', isPage ? 'text/html' : 'text/javascript');
        res.end(isPage ? '<!doctype html><title>Page</title><script src="/page.js"></script>' : script);
        return true;
      },
    });
    try {
      const { page } = await chromium.open(`${front.url}/`);
      expect(await page.title()).toBe(`TypeError: ${REFUSED}`);
    } finally {
      await front.close();
    }
  });
});
