import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get, request } from 'node:https';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Browser, openBrowser } from '../harness/browser/browser.ts';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import {
  describeWithLoadBalancers,
  type LoadBalancer,
  startCaddy,
  startHaproxy,
  stopLoadBalancers,
} from '../harness/relay/deployed-load-balancers.ts';
import { type FakeRelay, type Reply, reply, startFakeRelay } from '../harness/relay/fake-relay.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

/** So many messages that each relay gets some of them, also if a relay is drawn for each. */
const MANY = 32;

/** A load balancer in front of two relays. */
interface Deployed {
  readonly front: LoadBalancer;
  readonly relays: readonly [FakeRelay, FakeRelay];
  readonly send: Browser['send'];
  post(body?: string | Buffer): ReturnType<Browser['send']>;
  /** Sends `MANY` messages at once. */
  postMany(): Promise<(Awaited<ReturnType<Browser['send']>> | Error)[]>;
  /** How many requests each relay has got. */
  counts(): number[];
  close(): Promise<void>;
}

async function deploy(start: typeof startHaproxy): Promise<Deployed> {
  const ports = [await freePort(), await freePort()] as const;
  const relays = [await startFakeRelay(ports[0], ok), await startFakeRelay(ports[1], ok)] as const;
  const front = await start(ports);
  const browser = openBrowser(front.origin, front.certificate);
  const post = (body: string | Buffer = MESSAGE) => browser.send(BOT_PATH, { body });
  return {
    front,
    relays,
    send: browser.send,
    post,
    postMany: () => Promise.all(Array.from({ length: MANY }, () => post().catch((error: Error) => error))),
    counts: () => relays.map(({ seen }) => seen.length),
    async close() {
      browser.close();
      for (const relay of relays) await relay.close();
    },
  };
}

const ok: Reply = (res) => res.end('ok');
const cut: Reply = (res) => res.destroy();

const PROGRAMS: [file: string, start: typeof startHaproxy, retriesRefused: boolean][] = [
  ['deploy/haproxy.cfg', startHaproxy, true],
  ['deploy/Caddyfile', startCaddy, false],
];

/** Resolves when the relay was asked for `/readyz` so many times more. */
async function checked({ asked }: FakeRelay, times: number): Promise<void> {
  const before = asked();
  await until(() => asked() >= before + times);
}

async function expectNoneWithoutReadiness({ relays, postMany, counts }: Deployed): Promise<void> {
  await postMany();
  expect(Math.min(...counts())).toBeGreaterThan(0);
  relays[0].ready = false;
  // Two checks must fail before the third.
  await checked(relays[0], 3);
  const [before] = counts();
  await postMany();
  expect(counts()).toEqual([before, 2 * MANY - Number(before)]);
  relays[0].ready = true;
  await checked(relays[0], 2);
  await postMany();
  expect(counts()[0]).toBeGreaterThan(Number(before));
}

async function expectOtherUsed(deployed: Deployed, retriesRefused: boolean): Promise<void> {
  const { relays, post, postMany, counts } = deployed;
  await postMany();
  const before = counts()[1] as number;
  // Both were ready a moment ago.
  await relays[0].close();
  const answers = await postMany();
  const refused = answers.filter((answer) => !('status' in answer) || answer.status !== 200);
  // Only Caddy refuses such a message, with an error.
  const lost = retriesRefused ? [] : refused.map(() => expect.objectContaining({ status: 502 }));
  expect(refused).toEqual(lost);
  expect(relays[1].seen.length).toBe(before + MANY - refused.length);
  // All of them go to the other relay as soon as a check has failed twice.
  await until(
    async () => (await postMany()).every((answer) => 'status' in answer && answer.status === 200),
    100,
  );
  const large = Buffer.alloc(500_000, 'x');
  for (let i = 0; i < 4; i++) expect((await post(large)).status).toBe(200);
  for (const { body } of relays[1].seen.slice(-4)) expect(body.equals(large)).toBe(true);
}

/** Runs `use` with a load balancer and relays of its own. */
async function withOwn(start: typeof startHaproxy, use: (deployed: Deployed) => Promise<void>) {
  const deployed = await deploy(start);
  try {
    await use(deployed);
  } finally {
    await deployed.close();
  }
}

describeWithLoadBalancers('in front of two relays', () => {
  afterAll(() => stopLoadBalancers());

  // They wait for the next checks.
  testSideBySide(
    PROGRAMS.flatMap(([file, start, retriesRefused]) => [
      [
        `${file} shares the messages among the relays, and sends none to a relay that is not ready`,
        () => withOwn(start, expectNoneWithoutReadiness),
      ],
      [
        `${file} soon sends all messages to the other relay when the port of one is closed, and none twice`,
        () => withOwn(start, (deployed) => expectOtherUsed(deployed, retriesRefused)),
      ],
    ]),
  );

  describe.each(PROGRAMS)('%s', (_file, startLoadBalancer) => {
    let deployed: Deployed;
    let { front, relays, send, post, postMany, counts } = {} as Deployed;
    beforeAll(async () => {
      deployed = await deploy(startLoadBalancer);
      ({ front, relays, send, post, postMany, counts } = deployed);
    });
    afterAll(() => deployed?.close());

    test.each([429, 500, 502, 503, 504])(
      "passes a relay's %d on, and does not ask the other",
      async (status) => {
        const asItIs: Reply = (res) => void res.writeHead(status, { 'X-Says': 'relay' }).end('as it is');
        reply(relays, asItIs, asItIs);
        expect(await post()).toMatchObject({ status, body: 'as it is', headers: { 'x-says': 'relay' } });
        expect(counts().reduce((a, b) => a + b)).toBe(1);
      },
    );

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
      const client = get(front.origin, { ca: front.certificate, agent: false });
      const [response] = (await once(client, 'response')) as [IncomingMessage];
      let before = -1;
      while (before < written) {
        before = written;
        await sleep(500);
      }
      // The buffers of sockets hold this much; a proxy would hold more.
      expect(written).toBeLessThan(64 * MIB);
      response.destroy();
    });

    test.each([
      ['in mid-stream', true],
      ['before its answer', false],
    ])('closes its connection to the relay at once when a client leaves %s', async (_when, begins) => {
      let left = 0;
      const wait: Reply = (res) => {
        res.once('close', () => left++);
        if (begins) res.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: 1\n\n');
      };
      reply(relays, wait, wait);
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

    test('sets the address of the client itself, and ignores one that the client claims', async () => {
      reply(relays, ok, ok);
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

    test('redirects http to https for its own name only, and logs no query', async () => {
      reply(relays, ok, ok);
      expect(
        await call(front.httpPort, '/auth/session?x=1', { headers: { Host: 'evil.example' } }),
      ).toMatchObject({ status: 308, headers: { location: 'https://chat.example.com/auth/session?x=1' } });
      await send(`${BOT_PATH}?query=secret`, { body: MESSAGE });
      expect(front.log()).not.toMatch(/secret|x=1/);
    });
  });
});
