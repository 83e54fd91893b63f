import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { type Browser, openBrowser } from '../support/browser.ts';
import { call } from '../support/call.ts';
import { type FakeRelay, type Reply, startFakeRelay } from '../support/fake-relay.ts';
import { freePort } from '../support/free-port.ts';
import { describeWithNginx, type Nginx, startNginx, stopNginx } from '../support/nginx.ts';
import { BOT_PATH, MESSAGE } from '../support/relay.ts';

/** Longer than what a relay has said at `/readyz` is believed. */
const BELIEVED_MS = 2_100;

let nginx: Nginx;
let browser: Browser | undefined;
let relays: readonly [FakeRelay, FakeRelay];
afterEach(async () => {
  browser?.close();
  await stopNginx();
  await Promise.all(relays.map((relay) => relay.close()));
});

const ok: Reply = (res) => res.end('ok');
const refuse: Reply = (res) => {
  res
    .writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' })
    .end('{"code":"draining"}');
};

async function start(first: Reply, second: Reply): Promise<void> {
  const ports = [await freePort(), await freePort()] as const;
  relays = [await startFakeRelay(ports[0], first), await startFakeRelay(ports[1], second)];
  nginx = await startNginx(ports);
  browser = openBrowser(nginx.origin, nginx.certificate);
}

const send: Browser['send'] = (path, request) => (browser as Browser).send(path, request);
const post = (body: string | Buffer = MESSAGE) => send(BOT_PATH, { body });
/** Enough messages that each relay is drawn for some of them. */
const postMany = () => Promise.all(Array.from({ length: 16 }, () => post().catch((error: Error) => error)));
const counts = () => relays.map(({ seen }) => seen.length);

describeWithNginx('deploy/nginx.conf', () => {
  test('shares the messages among the relays, and asks each of them once a second whether it is ready', async () => {
    await start(ok, ok);
    for (let i = 0; i < 4; i++) await postMany();
    expect(Math.min(...counts())).toBeGreaterThan(0);
    expect(counts().reduce((a, b) => a + b)).toBe(64);
    for (const relay of relays) expect(relay.asked()).toBeLessThan(8);
  });

  test('sends nothing to a relay that is not ready, and soon notices that it is (O2)', async () => {
    await start(ok, ok);
    (relays[0] as FakeRelay).ready = false;
    await postMany();
    expect(counts()).toEqual([0, 16]);
    (relays[0] as FakeRelay).ready = true;
    await sleep(BELIEVED_MS);
    await postMany();
    expect(counts()[0]).toBeGreaterThan(0);
  });

  test('sends to the other relay what a relay has refused with 503, whole and once (O2)', async () => {
    await start(refuse, ok);
    const answers = await postMany();
    expect(answers).toEqual(Array(16).fill(expect.objectContaining({ status: 200, body: 'ok' })));
    expect(counts()[0]).toBeGreaterThan(0);
    expect(counts()[1]).toBe(16);
    // Longer than what is kept in memory, and of bytes that are no text.
    const large = Buffer.alloc(
      1_000_000,
      Uint8Array.from({ length: 251 }, (_, i) => i),
    );
    for (let i = 0; i < 8; i++) expect((await post(large)).status).toBe(200);
    for (const { body } of relays[1].seen.slice(16)) expect(body.equals(large)).toBe(true);
  });

  test('passes on the 503 of both relays as the second one says it', async () => {
    await start(refuse, refuse);
    const answer = await post();
    expect(answer).toMatchObject({ status: 503, body: '{"code":"draining"}' });
    expect(answer.headers).toMatchObject({ 'retry-after': '1', 'content-type': 'application/problem+json' });
    expect(counts()).toEqual([1, 1]);
  });

  test.each([429, 500, 502, 504])("passes on a relay's %d as it is, and asks no other", async (status) => {
    const reply: Reply = (res) => void res.writeHead(status, { 'X-Says': 'relay' }).end('as it is');
    await start(reply, reply);
    const answer = await post();
    expect(answer).toMatchObject({ status, body: 'as it is', headers: { 'x-says': 'relay' } });
    expect(counts().reduce((a, b) => a + b)).toBe(1);
  });

  test('goes to the other relay when the port of one is closed (O3)', async () => {
    await start(ok, ok);
    await postMany();
    // Both were ready a moment ago.
    await relays[0].close();
    const answers = await postMany();
    expect(answers).toEqual(Array(16).fill(expect.objectContaining({ status: 200 })));
  });

  test('never sends a message again that a relay may have run', async () => {
    await start(
      (res) => res.destroy(),
      (res) => res.destroy(),
    );
    const answers = await postMany();
    expect(answers).toEqual(Array(16).fill(expect.objectContaining({ status: 502 })));
    expect(counts().reduce((a, b) => a + b)).toBe(16);
  });

  test('hands each piece of a stream on before the next one is there', async () => {
    let write: ((text: string) => void) | undefined;
    const stream: Reply = (res) => {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      write = (text) => (text ? res.write(text) : res.end());
      write('data: 1\n\n');
    };
    await start(stream, stream);
    const came: string[] = [];
    const answer = await send(BOT_PATH, {
      body: MESSAGE,
      headers: { 'accept-encoding': 'gzip' },
      onData(text) {
        came.push(text);
        // The next one is written only because this one has come.
        write?.(came.length < 4 ? `data: ${came.length + 1}\n\n` : '');
      },
    });
    expect(came).toEqual(['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n', 'data: 4\n\n']);
    expect(answer.headers['content-encoding']).toBeUndefined();
  });

  test('takes no more of a stream than its client reads', async () => {
    const MIB = 2 ** 20;
    let written = 0;
    const pour: Reply = async (res) => {
      res.writeHead(200, { 'Content-Type': 'text/event-stream' });
      for (; written < 256 * MIB && !res.destroyed; written += MIB) {
        if (!res.write(Buffer.alloc(MIB, ':'))) await once(res, 'drain').catch(() => {});
      }
    };
    await start(pour, pour);
    const client = get(nginx.origin, { ca: nginx.certificate, agent: false });
    const [response] = (await once(client, 'response')) as [IncomingMessage];
    let before = -1;
    while (before < written) {
      before = written;
      await sleep(500);
    }
    // What the sockets on the way hold, not what a proxy has kept on its disk.
    expect(written).toBeLessThan(64 * MIB);
    response.destroy();
  });

  test('says itself who the client is, and lets no client say it (G16)', async () => {
    await start(ok, ok);
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

  test('passes the path on as it came, and shows nobody how it asks the relays', async () => {
    await start(ok, ok);
    await send('/a%2Fb//c/?q=%20');
    expect(relays.flatMap(({ seen }) => seen.map(({ url }) => url))).toEqual(['/a%2Fb//c/?q=%20']);
    expect((await send('/-/readiness')).status).toBe(404);
  });

  test.each(['localhost', 'evil.example', 'localhost@evil.example', 'evil.example:80'])(
    'sends http to https at its own name, whatever name was asked for (%s)',
    async (host) => {
      await start(ok, ok);
      const answer = await call(nginx.httpPort, '//evil.example/?x=1', { headers: { Host: host } });
      expect(answer).toMatchObject({
        status: 308,
        headers: { location: 'https://localhost//evil.example/?x=1' },
      });
    },
  );

  test('logs neither queries nor bodies', async () => {
    await start(ok, ok);
    await call(nginx.httpPort, '/auth/session?x=1');
    await send(`${BOT_PATH}?query=secret`, { body: MESSAGE });
    while (nginx.accessLog().length < 2) await sleep(10);
    expect(nginx.accessLog()[1]).toMatchObject({
      method: 'POST',
      path: BOT_PATH,
      status: '200',
      relayStatus: '200',
    });
    expect(JSON.stringify(nginx.accessLog())).not.toMatch(/secret|x=1/);
    expect(nginx.errorLog()).toBe('');
  });
});
