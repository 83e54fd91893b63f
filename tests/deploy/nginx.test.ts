import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Browser, openBrowser } from '../harness/browser/browser.ts';
import { call } from '../harness/clients/call.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { type FakeRelay, type Reply, reply, startFakeRelay } from '../harness/relay/fake-relay.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { describeWithNginx, type Nginx, startNginx, stopNginx } from '../harness/relay/nginx.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';

let nginx: Nginx;
let browser: Browser | undefined;
let relays: readonly [FakeRelay, FakeRelay];

const ok: Reply = (res) => res.end('ok');
const refuse: Reply = (res) => {
  res
    .writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' })
    .end('{"code":"draining"}');
};

const cut: Reply = (res) => res.destroy();

const send: Browser['send'] = (path, request) => (browser as Browser).send(path, request);
const post = (body: string | Buffer = MESSAGE) => send(BOT_PATH, { body });
/** Enough messages that each relay gets some of them: nginx draws one for each. */
const MANY = 32;
const postMany = () => Promise.all(Array.from({ length: MANY }, () => post().catch((error: Error) => error)));
const counts = () => relays.map(({ seen }) => seen.length);

describeWithNginx('deploy/nginx.conf', () => {
  // All cases share it and leave both relays ready. The last case closes a port.
  beforeAll(async () => {
    const ports = [await freePort(), await freePort()] as const;
    relays = [await startFakeRelay(ports[0], ok), await startFakeRelay(ports[1], ok)];
    nginx = await startNginx(ports);
    browser = openBrowser(nginx.origin, nginx.certificate);
  });
  afterAll(async () => {
    browser?.close();
    await stopNginx();
    await Promise.all(relays.map((relay) => relay.close()));
  });

  // The first case, since nginx has not asked the relays yet.
  test('sends nothing to a relay that is not ready, and uses it again when it is', async () => {
    reply(relays, ok, ok);
    relays[0].ready = false;
    await postMany();
    expect(counts()).toEqual([0, MANY]);
    relays[0].ready = true;
    await until(async () => {
      await postMany();
      return Number(counts()[0]) > 0;
    }, 100);
  });

  test('shares the messages among the relays', async () => {
    reply(relays, ok, ok);
    for (let i = 0; i < 4; i++) await postMany();
    expect(Math.min(...counts())).toBeGreaterThan(0);
    expect(counts().reduce((a, b) => a + b)).toBe(4 * MANY);
  });

  test('does not ask before each message whether a relay is ready', async () => {
    reply(relays, ok, ok);
    const asked = relays.map((relay) => relay.asked());
    // One after the other: what comes together while an answer gets too old may ask together.
    for (let i = 0; i < 40; i++) await post();
    for (const [index, relay] of relays.entries())
      expect(relay.asked() - Number(asked[index])).toBeLessThan(relay.seen.length);
  });

  test('sends a message that a relay has refused with 503 to the other relay, whole and once', async () => {
    reply(relays, refuse, ok);
    const answers = await postMany();
    expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 200, body: 'ok' })));
    expect(counts()[0]).toBeGreaterThan(0);
    expect(counts()[1]).toBe(MANY);
    // Longer than the buffer in memory, and with bytes that are not text.
    const large = Buffer.alloc(
      1_000_000,
      Uint8Array.from({ length: 251 }, (_, i) => i),
    );
    for (let i = 0; i < 8; i++) expect((await post(large)).status).toBe(200);
    for (const { body } of relays[1].seen.slice(MANY)) expect(body.equals(large)).toBe(true);
  });

  test('passes on the second 503 if both relays refuse', async () => {
    reply(relays, refuse, refuse);
    const answer = await post();
    expect(answer).toMatchObject({ status: 503, body: '{"code":"draining"}' });
    expect(answer.headers).toMatchObject({ 'retry-after': '1', 'content-type': 'application/problem+json' });
    expect(counts()).toEqual([1, 1]);
  });

  test.each([429, 500, 502, 504])("passes a relay's %d on, and does not ask the other", async (status) => {
    const asItIs: Reply = (res) => void res.writeHead(status, { 'X-Says': 'relay' }).end('as it is');
    reply(relays, asItIs, asItIs);
    const answer = await post();
    expect(answer).toMatchObject({ status, body: 'as it is', headers: { 'x-says': 'relay' } });
    expect(counts().reduce((a, b) => a + b)).toBe(1);
  });

  test('never sends a message again that a relay may have run', async () => {
    reply(relays, cut, cut);
    const answers = await postMany();
    expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 502 })));
    expect(counts().reduce((a, b) => a + b)).toBe(MANY);
  });

  test('forwards each piece of a stream before the next one exists', async () => {
    let write: ((text: string) => void) | undefined;
    const stream: Reply = (res) => {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      write = (text) => (text ? res.write(text) : res.end());
      write('data: 1\n\n');
    };
    reply(relays, stream, stream);
    const came: string[] = [];
    const answer = await send(BOT_PATH, {
      body: MESSAGE,
      headers: { 'accept-encoding': 'gzip' },
      onData(text) {
        came.push(text);
        // The next piece is written only after this one has arrived.
        write?.(came.length < 4 ? `data: ${came.length + 1}\n\n` : '');
      },
    });
    expect(came).toEqual(['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n', 'data: 4\n\n']);
    expect(answer.headers['content-encoding']).toBeUndefined();
  });

  test('reads no more of a stream than its client does', async () => {
    const MIB = 2 ** 20;
    let written = 0;
    const pour: Reply = async (res) => {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      for (; written < 256 * MIB && !res.destroyed; written += MIB) {
        if (!res.write(Buffer.alloc(MIB, ':'))) await once(res, 'drain').catch(() => {});
      }
    };
    reply(relays, pour, pour);
    const client = get(nginx.origin, { ca: nginx.certificate, agent: false });
    const [response] = (await once(client, 'response')) as [IncomingMessage];
    let before = -1;
    while (before < written) {
      before = written;
      await sleep(500);
    }
    // The buffers of sockets hold this much; a buffer on disk would hold more.
    expect(written).toBeLessThan(64 * MIB);
    response.destroy();
  });

  test('sets the address of the client itself, and ignores one that the client claims', async () => {
    reply(relays, ok, ok);
    const claims = {
      'x-forwarded-for': '203.0.113.7',
      'x-forwarded-proto': 'http',
      'x-forwarded-host': 'evil.example',
      forwarded: 'for=203.0.113.7',
    };
    await send(BOT_PATH, { body: MESSAGE, headers: claims });
    const { headers, body } = relays.flatMap(({ seen }) => seen)[0] as FakeRelay['seen'][0];
    expect(headers).toMatchObject({
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'https',
      connection: 'close',
      'content-type': 'application/json',
    });
    expect(headers['x-forwarded-host']).toBeUndefined();
    expect(headers.forwarded).toBeUndefined();
    expect(body.toString()).toBe(MESSAGE);
  });

  test('forwards the path unchanged, and does not serve its own probes to clients', async () => {
    reply(relays, ok, ok);
    await send('/a%2Fb//c/?q=%20');
    expect(relays.flatMap(({ seen }) => seen.map(({ url }) => url))).toEqual(['/a%2Fb//c/?q=%20']);
    expect((await send('/-/readiness')).status).toBe(404);
  });

  test.each(['localhost', 'evil.example', 'localhost@evil.example', 'evil.example:80'])(
    'redirects http to https at its own name, whatever the Host (%s)',
    async (host) => {
      reply(relays, ok, ok);
      const answer = await call(nginx.httpPort, '//evil.example/?x=1', { headers: { Host: host } });
      expect(answer).toMatchObject({
        status: 308,
        headers: { location: 'https://localhost//evil.example/?x=1' },
      });
    },
  );

  test('logs neither queries nor bodies', async () => {
    reply(relays, ok, ok);
    const errors = nginx.errorLog();
    const path = BOT_PATH.replace('helper', 'logged');
    // A line is written after its answer was received, so lines of earlier requests may still come.
    const logged = (of: string) => nginx.accessLog().find((line) => line.path === of);
    await call(nginx.httpPort, '/logged?x=1');
    await send(`${path}?query=secret`, { body: MESSAGE });
    await until(() => !!logged('/logged') && !!logged(path));
    expect(logged(path)).toMatchObject({ method: 'POST', status: '200', relayStatus: '200' });
    expect(JSON.stringify(nginx.accessLog())).not.toMatch(/secret|x=1/);
    expect(nginx.errorLog()).toBe(errors);
  });

  test('uses the other relay when the port of one is closed', async () => {
    reply(relays, ok, ok);
    await postMany();
    // Both were ready a moment ago.
    await relays[0].close();
    const answers = await postMany();
    expect(answers).toEqual(Array(MANY).fill(expect.objectContaining({ status: 200 })));
  });
});
