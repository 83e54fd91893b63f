import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createBotClient } from '../../src/client/session/bot-client.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { type TestOptions, testClient } from '../harness/clients/test-client.ts';
import { startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

let upstream: RawUpstream;
let relay: TestRelay | undefined;
beforeEach(async () => {
  upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
});
afterEach(async () => {
  await relay?.close();
  relay = undefined;
  await upstream.close();
});

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
    ['an origin with a slash at its end', '', () => `${origin()}/`],
    ['an origin with a base path', '/chat-api', () => `${origin()}/chat-api`],
    ['an origin with a base path and slashes at its end', '/chat-api', () => `${origin()}/chat-api//`],
    ['a base path of the page’s origin', '/chat-api', () => '/chat-api'],
    ['a base path with a slash at its end', '/chat-api', () => '/chat-api/'],
    ['nothing: the page’s origin', '', () => ''],
    ['a slash: the page’s origin', '', () => '/'],
  ])('%s', async (_, BASE_PATH, baseUrl) => {
    relay = await startRelay(upstream.url, { BASE_PATH });
    // As a page resolves a path. With two slashes at the beginning it would name a host.
    const inPage: typeof fetch = (path, init) => fetch(new URL(String(path), `${origin()}/page/of/it`), init);
    await tryAll({ baseUrl: baseUrl(), namespace: 'acme', botProviderName: 'helper', fetch: inPage });
  });
});

describe('a baseUrl that is wrong', () => {
  const bot = { namespace: 'acme', botProviderName: 'helper' };
  const wrong = expect.objectContaining({
    name: 'TypeError',
    message: expect.stringMatching(/^baseUrl .*https:/),
  });

  test.each([
    ...[null, 5, new URL('http://localhost:3000')],
    ...['localhost:3000', 'chat.example.com', 'ws://localhost', 'http://', 'http:///x', 'https://a b', ' '],
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
  relay = await startRelay(upstream.url);
  await tryAll({ baseUrl: relay.url, namespace: 'acme', botProviderName: 'helper' });
  const client = createBotClient({ baseUrl: relay.url, bot: 'acme/helper', expert: { cookies: 'keep' } });
  await client.signIn(USER.name, USER.password);
  expect(await readAll(client.send('hi'))).toMatchObject({ events: [{ raw: 1 }], error: undefined });
  expect(upstream.requests[1]?.requestLine).toBe(upstream.requests[0]?.requestLine);
});

test.each(['helper', 'acme/', '/helper', 'acme/helper/more', '', undefined])(
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
    relay = await startRelay(upstream.url, { BOTS: '*/*' });
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
  relay = await startRelay(upstream.url);
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
