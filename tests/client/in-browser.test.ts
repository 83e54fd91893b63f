import { existsSync, readFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type * as Client from '../../src/client/session/bot-client.ts';
import { describeInChromium, oneChromium, type Tab } from '../harness/browser/chromium.ts';
import { bundleClient } from '../harness/browser/react-page.ts';
import { type Consumer, makeConsumer } from '../harness/clients/consumer.ts';
import { until } from '../harness/clock/until.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import {
  chunk,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const PAGE =
  '<!doctype html><html lang="en"><title>Page</title><script type="module" src="/page.js"></script>';
const CSP = "default-src 'none'; script-src 'self'; connect-src *";
const BOT = { namespace: 'acme', botProviderName: 'helper' };
const begun = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

/** The globals of the page's script. */
type Page = typeof globalThis & { botRelay: typeof Client; client: Client.BotClient };

/** A script that has the client, and one client of the page's own origin. */
const SCRIPT = `
  import * as botRelay from './session/bot-client.ts';
  const client = botRelay.createBotClient({ baseUrl: '', namespace: 'acme', botProviderName: 'helper' });
  Object.assign(globalThis, { botRelay, client });
`;

/** The page of the document, whose script signs in and shows who that is. */
const MAP_PAGE = `<!doctype html><html lang="en"><title>Page</title>${codeOf(
  readFileSync(join(ROOT, 'docs/front-end/client.md'), 'utf8'),
  'import-map',
).replace(
  /<\/script>\s*$/,
  `document.title = (await client.signIn('${USER.name}', '${USER.password}')).user.name;</script>`,
)}`;

/** Whether the error of an element without a relay is a RelayError of the client's own entry. */
const FAILURE = `(async () => {
  const { RelayError } = await import('/bot-relay-client/index.js');
  await import('/bot-relay-client/element.js');
  const chat = document.createElement('bot-chat');
  chat.setAttribute('base-url', '/nowhere');
  document.body.append(chat);
  return new Promise((resolve) =>
    chat.addEventListener('bot-error', ({ detail }) => resolve([detail instanceof RelayError, detail.status])));
})()`;

describeInChromium('the client in a page', () => {
  const chromium = oneChromium();
  let script: string;
  let consumer: Consumer;
  let front: FakeLoadBalancer;
  let upstream: RawUpstream;
  let relay: TestRelay;
  /** What the page has received so far. */
  const heard: string[] = [];
  const resumes: string[] = [];
  /** The connection on which the page has sent its last message. */
  let pageSocket: Socket | undefined;

  /** Answers with a page of the relay's origin, its script, and the files of the package; the rest is the relay's. */
  function answer(req: IncomingMessage, res: ServerResponse): boolean {
    const { url = '' } = req;
    if (url.startsWith('/generic')) pageSocket = req.socket;
    const file = join(consumer.folder, 'node_modules', url);
    const body =
      { '/': PAGE, '/page.js': script, '/import-map': MAP_PAGE }[url] ??
      (url.endsWith('.js') && existsSync(file) ? readFileSync(file) : undefined);
    if (body === undefined) return false;
    const type = url.endsWith('.js') ? 'text/javascript' : 'text/html; charset=utf-8';
    res.setHeader('Content-Type', type);
    if (url === '/') res.setHeader('Content-Security-Policy', CSP);
    res.end(body);
    return true;
  }

  beforeAll(async () => {
    script = await bundleClient(SCRIPT);
    consumer = makeConsumer([]);
    front = await startFakeLoadBalancer({ answer });
    upstream = await startRawUpstream(async (socket, { body, all }) => {
      const { text } = JSON.parse(String(body)) as { text: string };
      const [lastEventId] = all('last-event-id');
      const heardBefore = heard.length;
      // A pause before the cut: browsers drop bytes that were not read when the connection is cut.
      const isHeard = () => until(() => heard.length > heardBefore);
      if (text === 'lost') {
        socket.write(begun('data: 1\n\n'));
        await isHeard();
        pageSocket?.destroy();
      } else if (text === 'broken') socket.end(begun('data: 1\n\n'));
      else if (text === 'resumed' && lastEventId === undefined) {
        socket.write(begun('retry: 1\nid: é-1\ndata: {"say":"hé 🦊"}\n\n'));
        await isHeard();
        pageSocket?.destroy();
      } else if (text === 'resumed') {
        resumes.push(Buffer.from(lastEventId ?? '', 'latin1').toString('utf8'));
        socket.write(wholeStream('id: é-2\ndata: 2\n\n'));
      } else socket.write(begun('data: 1\n\n'));
    });
    // Without a run to come back to, the client's resumption goes to the service.
    relay = await startRelay(upstream.url, { PUBLIC_URL: front.url, JOIN: 'off' });
    front.forwardTo(relay.port);
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
    await front.close();
    consumer.remove();
  });

  async function openPage(): Promise<Tab['page']> {
    const { page } = await chromium.open(`${front.url}/`);
    await page.waitForFunction('globalThis.client');
    return page;
  }
  /** A page of a user who is signed in, and sends messages and reads them to their ends. */
  async function signedIn() {
    const page = await openPage();
    await page.exposeFunction('hear', (what: string) => void heard.push(what));
    await page.evaluate(({ name, password }) => (globalThis as Page).client.signIn(name, password), USER);
    const ask = (text: string) =>
      page.evaluate(async (text) => {
        const { client, hear } = globalThis as Page & { hear: (what: string) => Promise<void> };
        const states: string[] = [];
        const events: unknown[] = [];
        const stream = client.send(text, { onState: (state) => void states.push(state) });
        let error: Partial<Client.RelayError> | undefined;
        try {
          for await (const event of stream) {
            events.push(event);
            await hear(String((event.raw as { say?: string }).say ?? event.raw));
          }
        } catch (thrown) {
          const { name, code, status, requestId } = thrown as Client.RelayError;
          error = { name, code, status, requestId };
        }
        return { states, events, error, requestId: stream.requestId };
      }, text);
    return { page, ask };
  }

  test('tells a broken answer from a complete one, and resumes one with ids', async () => {
    const { ask } = await signedIn();
    const broken = await ask('broken');
    expect(broken.error).toEqual({
      name: 'RelayError',
      code: 'upstream_stream_broken',
      status: 502,
      requestId: broken.requestId,
    });
    const lost = await ask('lost');
    expect(lost).toMatchObject({ events: { length: 1 }, error: { code: 'connection_lost', status: 0 } });
    const { states, events, error } = await ask('resumed');
    expect(error).toBeUndefined();
    expect(events).toMatchObject([{ raw: { say: 'hé 🦊' }, id: 'é-1' }, { raw: 2 }]);
    expect(states).toEqual(['streaming', 'waiting', 'streaming', 'done']);
    expect(resumes).toEqual(['é-1']);
  });

  test.each([
    ['abort', 'AbortError'],
    ['break', 'nothing'],
  ])('closes the connection to the bot service by %s', async (way, expected) => {
    const { page } = await signedIn();
    const asked = upstream.requests.length;
    const sockets = new Set(upstream.sockets.filter(({ closed }) => closed));
    const thrown = await page.evaluate(async (way) => {
      const { client } = globalThis as Page;
      const stop = new AbortController();
      try {
        for await (const _ of client.send('for ever', { signal: stop.signal })) {
          if (way === 'break') break;
          stop.abort();
        }
      } catch (error) {
        return (error as Error).name;
      }
      return 'nothing';
    }, way);
    expect(thrown).toBe(expected);
    expect(upstream.requests).toHaveLength(asked + 1);
    await until(() => upstream.sockets.some((socket) => socket.closed && !sockets.has(socket)));
  });

  test('refuses the key of the bot service, and names the relay', async () => {
    const page = await openPage();
    const said = await page.evaluate((bot) => {
      try {
        return String(
          (globalThis as Page).botRelay.createBotClient({ baseUrl: '', ...bot, apiKey: 'key-1' }),
        );
      } catch (error) {
        return String(error);
      }
    }, BOT);
    expect(said).toBe('TypeError: In a browser, leave out apiKey, and use the relay: it adds the key.');
  });

  /** What a page of another origin than the relay's at `baseUrl` is told, and what after `pause`. */
  async function unreachable(baseUrl: string, pause = async () => {}) {
    const page = await openPage();
    const ask = () =>
      page.evaluate(
        (options) => {
          const its = globalThis as Page & { other?: Client.BotClient };
          its.other ??= its.botRelay.createBotClient(options);
          return its.other.session().then(String, ({ code, message, hint }) => [code, message, hint]);
        },
        { baseUrl, ...BOT },
      );
    const first = await ask();
    await pause();
    return [first, await ask()];
  }

  test('of another origin is told that ALLOWED_ORIGINS may lack it, unless the relay has answered it before', async () => {
    const hint = `The relay may be away, or its ALLOWED_ORIGINS lacks ${front.url}.`;
    const closed = await startRelay(upstream.url);
    expect((await unreachable(closed.url))[0]).toEqual(['unreachable', 'The server is unreachable.', hint]);
    await closed.close();
    const open = await startRelay(upstream.url, { ALLOWED_ORIGINS: front.url });
    const [, then] = await unreachable(open.url, open.close);
    expect(then).toEqual(['unreachable', 'The server is unreachable.', undefined]);
  });

  test('without a bundler is loaded by the import map of the document; the files share their RelayError', async () => {
    const { page, complaints } = await chromium.open(`${front.url}/import-map`);
    await page.waitForFunction(`document.title === '${USER.name}'`);
    expect(complaints).toEqual([]);
    expect(await page.evaluate(FAILURE)).toEqual([true, 404]);
  });
});
