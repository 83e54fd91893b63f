import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get, request } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { type Browser, openBrowser } from '../support/browser.ts';
import { call } from '../support/call.ts';
import {
  describeWithLoadBalancers,
  type LoadBalancer,
  startCaddy,
  startHaproxy,
  stopLoadBalancers,
} from '../support/deployed-load-balancers.ts';
import { type FakeRelay, type Reply, startFakeRelay } from '../support/fake-relay.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/pair.ts';
import { BOT_PATH, MESSAGE } from '../support/relay.ts';

/** Longer than a relay that answers 503 at `/readyz` gets requests: two checks a second apart, and their answers. */
const NOTICED_MS = 3_000;

let front: LoadBalancer;
let browser: Browser | undefined;
let relays: readonly [FakeRelay, FakeRelay];
afterEach(async () => {
  browser?.close();
  await stopLoadBalancers();
  await Promise.all(relays.map((relay) => relay.close()));
});

const ok: Reply = (res) => res.end('ok');
const send: Browser['send'] = (path, options) => (browser as Browser).send(path, options);
const post = (body: string | Buffer = MESSAGE) => send(BOT_PATH, { body });
const postMany = () => Promise.all(Array.from({ length: 16 }, () => post().catch((error: Error) => error)));
const counts = () => relays.map(({ seen }) => seen.length);

describeWithLoadBalancers('in front of two relays', () => {
  describe.each([
    ['deploy/haproxy.cfg', startHaproxy, true],
    ['deploy/Caddyfile', startCaddy, false],
  ])('%s', (_file, startFront, retriesRefused) => {
    async function start(first: Reply, second: Reply): Promise<void> {
      const ports = [await freePort(), await freePort()] as const;
      relays = [await startFakeRelay(ports[0], first), await startFakeRelay(ports[1], second)];
      front = await startFront(ports);
      browser = openBrowser(front.origin, front.certificate);
    }

    test('shares the messages among the relays, and sends none to one that is not ready', async () => {
      await start(ok, ok);
      await postMany();
      expect(Math.min(...counts())).toBeGreaterThan(0);
      relays[0].ready = false;
      await sleep(NOTICED_MS);
      const [before] = counts();
      await postMany();
      expect(counts()).toEqual([before, 32 - Number(before)]);
      relays[0].ready = true;
      await sleep(NOTICED_MS);
      await postMany();
      expect(counts()[0]).toBeGreaterThan(Number(before));
    });

    test('soon sends all to the other relay when the port of one is closed, and none twice', async () => {
      await start(ok, ok);
      await postMany();
      const before = counts()[1] as number;
      // Both were ready a moment ago.
      await relays[0].close();
      const answers = await postMany();
      const refused = answers.filter((answer) => !('status' in answer) || answer.status !== 200);
      // Only Caddy gives such a message up, and then says so.
      const lost = retriesRefused ? [] : refused.map(() => expect.objectContaining({ status: 502 }));
      expect(refused).toEqual(lost);
      expect(relays[1].seen.length).toBe(before + 16 - refused.length);
      await sleep(NOTICED_MS);
      const large = Buffer.alloc(500_000, 'x');
      for (let i = 0; i < 4; i++) expect((await post(large)).status).toBe(200);
      for (const { body } of relays[1].seen.slice(-4)) expect(body.equals(large)).toBe(true);
    });

    test.each([429, 500, 502, 503, 504])("passes a relay's %d on, and asks no other", async (status) => {
      const reply: Reply = (res) => void res.writeHead(status, { 'X-Says': 'relay' }).end('as it is');
      await start(reply, reply);
      expect(await post()).toMatchObject({ status, body: 'as it is', headers: { 'x-says': 'relay' } });
      expect(counts().reduce((a, b) => a + b)).toBe(1);
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
      const client = get(front.origin, { ca: front.certificate, agent: false });
      const [response] = (await once(client, 'response')) as [IncomingMessage];
      let before = -1;
      while (before < written) {
        before = written;
        await sleep(500);
      }
      // What the sockets on the way hold, not what a proxy keeps.
      expect(written).toBeLessThan(64 * MIB);
      response.destroy();
    });

    test.each([
      ['in mid-stream', true],
      ['before its answer', false],
    ])('tells the relay at once that a client has left %s', async (_when, begins) => {
      let left = 0;
      const wait: Reply = (res) => {
        res.once('close', () => left++);
        if (begins) res.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: 1\n\n');
      };
      await start(wait, wait);
      const client = request(`${front.origin}${BOT_PATH}`, {
        method: 'POST',
        ca: front.certificate,
        agent: false,
        headers: { 'Content-Type': 'application/json' },
      });
      client.on('error', () => {});
      client.end(MESSAGE);
      if (begins) await once(client, 'response');
      else await until(() => counts().reduce((a, b) => a + b) === 1);
      client.destroy();
      await until(() => left === 1);
    });

    test('says itself who the client is, and lets no client say it', async () => {
      await start(ok, ok);
      const claims = {
        'x-forwarded-for': '203.0.113.7',
        'x-forwarded-proto': 'http',
        'x-forwarded-host': 'evil.example',
        forwarded: 'for=203.0.113.7',
      };
      await send('/a%2Fb//c/?q=%20', { body: MESSAGE, headers: claims });
      const { url, headers, body } = relays.flatMap(({ seen }) => seen)[0] as FakeRelay['seen'][0];
      expect(url).toBe('/a%2Fb//c/?q=%20');
      expect(headers).toMatchObject({
        host: new URL(front.origin).host,
        'x-forwarded-for': '127.0.0.1',
        'x-forwarded-proto': 'https',
        connection: 'close',
      });
      expect(headers['x-forwarded-host']).toBeUndefined();
      expect(headers.forwarded).toBeUndefined();
      expect(body.toString()).toBe(MESSAGE);
    });

    test('sends http to https under its own name alone, and logs no query', async () => {
      await start(ok, ok);
      expect(
        await call(front.httpPort, '/auth/session?x=1', { headers: { Host: 'evil.example' } }),
      ).toMatchObject({ status: 308, headers: { location: 'https://chat.example.com/auth/session?x=1' } });
      await send(`${BOT_PATH}?query=secret`, { body: MESSAGE });
      expect(front.log()).not.toMatch(/secret|x=1/);
    });
  });
});
