import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import type { createBotClient } from '../../src/client/session/bot-client.ts';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { bundleClient } from '../harness/browser/react-page.ts';
import { readAll } from '../harness/clients/client-pair.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { until } from '../harness/clock/until.ts';
import { startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

const BOT = { namespace: 'acme', botProviderName: 'helper' };
const SCRIPT = await bundleClient(
  "import { createBotClient } from './session/bot-client.ts'; Object.assign(globalThis, { createBotClient });",
);
const PAGE = `<!doctype html><title>My page</title><script type="module">${SCRIPT}</script>`;

/** As the development server of Vite: its page for each GET that wants anything, and 404 without a body for a POST. */
const server = createServer((req, res) => {
  if (req.method !== 'GET' || req.url?.startsWith('/none')) res.writeHead(404).end();
  else if (req.url?.startsWith('/down')) res.writeHead(502, { 'Content-Type': 'text/html' }).end('<h1>Bad');
  else res.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(PAGE);
});
let url: string;
let relay: TestRelay;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  relay = await startRelay('http://127.0.0.1:9', { BOTS: 'acme/helper' });
});
afterAll(async () => {
  await relay.close();
  await new Promise((resolve) => server.close(resolve));
});

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

type Page = typeof globalThis & { createBotClient: typeof createBotClient; again: () => Promise<unknown> };

describeInChromium('a page of another origin', () => {
  const chromium = oneChromium();

  /** Asks the relay from a page of the server, and again after `pause`. */
  async function ask(baseUrl: string, pause?: () => Promise<void>): Promise<unknown> {
    const { page } = await chromium.open(url);
    await page.waitForFunction('globalThis.createBotClient');
    const first = await page.evaluate(
      (options) => {
        const its = globalThis as Page;
        const client = its.createBotClient(options);
        its.again = () => client.session().then(String, ({ code, message, hint }) => [code, message, hint]);
        return its.again();
      },
      { baseUrl, ...BOT },
    );
    if (!pause) return first;
    await pause();
    return page.evaluate(() => (globalThis as Page).again());
  }

  test('is told that ALLOWED_ORIGINS may lack it', async () => {
    const hint = `The relay may be away, or its ALLOWED_ORIGINS lacks ${url}.`;
    expect(await ask(relay.url)).toEqual(['unreachable', 'The server is unreachable.', hint]);
  });

  test('is told nothing of that if the relay has answered it before', async () => {
    const open = await startRelay('http://127.0.0.1:9', { ALLOWED_ORIGINS: url });
    expect(await ask(open.url, open.close)).toEqual(['unreachable', 'The server is unreachable.', undefined]);
  });
});
