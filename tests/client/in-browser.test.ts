import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type * as Client from '../../src/client/session/bot-client.ts';
import { type Chromium, describeInChromium, startChromium, type Tab } from '../harness/browser/chromium.ts';
import { bundleClient } from '../harness/browser/react-page.ts';
import { until } from '../harness/clock/until.ts';
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
const CSP = "default-src 'none'; script-src 'self'; connect-src 'self'";
const begun = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

/** The globals of the page's script. */
type Page = typeof globalThis & { botRelay: typeof Client; client: Client.BotClient; signOuts: number };

/** A script that has the client, and one client of the page's own origin. */
const SCRIPT = `
  import * as botRelay from './session/bot-client.ts';
  const client = botRelay.createBotClient({ baseUrl: '', namespace: 'acme', botProviderName: 'helper' });
  Object.assign(globalThis, { botRelay, client, signOuts: 0 });
  client.addEventListener('signed-out', () => signOuts++);
`;

describeInChromium('the client in a page of the relay’s own origin', () => {
  let chromium: Chromium;
  let front: FakeLoadBalancer;
  let upstream: RawUpstream;
  let relay: TestRelay;
  let tab: Tab;
  /** Returns what the page has received so far. */
  const heard: string[] = [];
  const resumes: string[] = [];
  /** The connection on which the page has sent its last message. */
  let pageSocket: Socket | undefined;

  beforeAll(async () => {
    const script = await bundleClient(SCRIPT);
    front = await startFakeLoadBalancer({
      answer(req, res) {
        if (req.url?.startsWith('/generic')) pageSocket = req.socket;
        const body = { '/': PAGE, '/page.js': script }[req.url ?? ''];
        if (body === undefined) return false;
        const type = req.url === '/' ? 'text/html; charset=utf-8' : 'text/javascript';
        res.writeHead(200, { 'Content-Type': type, 'Content-Security-Policy': CSP }).end(body);
        return true;
      },
    });
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
    chromium = await startChromium();
    tab = await chromium.open(`${front.url}/`);
    await tab.page.exposeFunction('hear', (what: string) => void heard.push(what));
    await tab.page.waitForFunction('globalThis.client');
  }, 60_000);
  afterEach(() => expect(tab.complaints).toEqual([]));
  afterAll(async () => {
    await chromium?.close();
    await relay?.close();
    await upstream?.close();
    await front?.close();
  }, 60_000);

  const signIn = () =>
    tab.page.evaluate(async ({ name, password }) => {
      const { client } = globalThis as Page;
      return client.signIn(name, password);
    }, USER);
  /** Sends a message and reads it to its end. */
  const ask = (text: string) =>
    tab.page.evaluate(async (text) => {
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

  test('tells a broken answer from a complete one', async () => {
    await signIn();
    const broken = await ask('broken');
    expect(broken.error).toEqual({
      name: 'RelayError',
      code: 'upstream_stream_broken',
      status: 502,
      requestId: broken.requestId,
    });
    const lost = await ask('lost');
    expect(lost).toMatchObject({ events: { length: 1 }, error: { code: 'connection_lost', status: 0 } });
  });

  test('resumes a stream with ids', async () => {
    await signIn();
    const { states, events, error } = await ask('resumed');
    expect(error).toBeUndefined();
    expect(events).toMatchObject([{ raw: { say: 'hé 🦊' }, id: 'é-1' }, { raw: 2 }]);
    expect(states).toEqual(['streaming', 'waiting', 'streaming', 'done']);
    expect(resumes).toEqual(['é-1']);
  });

  test('closes the connection to the bot service by the signal and by leaving the loop', async () => {
    await signIn();
    for (const way of ['abort', 'break']) {
      const asked = upstream.requests.length;
      const sockets = new Set(upstream.sockets.filter(({ closed }) => closed));
      const thrown = await tab.page.evaluate(async (way) => {
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
      expect(thrown).toBe(way === 'abort' ? 'AbortError' : 'nothing');
      expect(upstream.requests).toHaveLength(asked + 1);
      await until(() => upstream.sockets.some((socket) => socket.closed && !sockets.has(socket)));
    }
  });
});
