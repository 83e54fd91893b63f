import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { openBrowser } from '../support/browser.ts';
import { call } from '../support/call.ts';
import { describeWithBalancers, startBalancer, stopBalancers } from '../support/common-load-balancers.ts';
import { describeWithNginx, startNginx, stopNginx } from '../support/nginx.ts';
import { type RawUpstream, startRawUpstream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { whileAwake } from '../support/while-awake.ts';

const RESPONSE_TIMEOUT_MS = 1_000;
const FEEDBACK_PATH = BOT_PATH.replace(/sse$/, 'feedback');

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly type?: string;
  readonly body?: string;
}

interface Balancer {
  readonly describe: typeof describeWithNginx;
  /** Starts it in front of both relays; returns a function that sends a request through it and resolves with the status. */
  readonly start: (
    ports: readonly [number, number],
  ) => Promise<(sent: Sent, cookie: string) => Promise<number>>;
}

const POST: Sent = { method: 'POST', path: BOT_PATH, type: 'application/json', body: MESSAGE };
const CLEAR: Sent = {
  method: 'POST',
  path: '/ns/acme/bot-provider/helper/channel/clear?custom_channel_id=c1',
};
const REMOVE: Sent = { method: 'DELETE', path: '/ns/acme/bot-provider/helper/channel?custom_channel_id=c1' };

const simple = (name: 'haproxy' | 'caddy'): Balancer => ({
  describe: describeWithBalancers,
  async start(ports) {
    const port = await startBalancer(name, ports);
    return async ({ path, type, ...sent }, cookie) => {
      const headers = { Cookie: cookie, ...(type !== undefined && { 'Content-Type': type }) };
      return (await call(port, path, { ...sent, headers })).status;
    };
  },
});

const nginx: Balancer = {
  describe: describeWithNginx,
  async start(ports) {
    const { origin, certificate } = await startNginx(ports);
    return async ({ method, path, type, ...sent }, cookie) => {
      const browser = openBrowser(origin, certificate);
      const own = { ':method': method, ...(type !== undefined && { 'content-type': type }) };
      const headers = { ...own, cookie, origin: 'http://app.example.com' };
      const { status } = await browser.send(path, { headers, ...sent });
      browser.close();
      return status;
    };
  },
};

describeWithRedis('two relays', () => {
  let upstream: RawUpstream;
  let relays: TestRelay[];
  let cookie: string;
  beforeAll(async () => {
    const redis = await startRedis();
    // Accepts every request and answers none.
    upstream = await startRawUpstream(() => {});
    const environment = {
      REDIS_URL: redis.url,
      UPSTREAM_RESPONSE_TIMEOUT_MS: String(RESPONSE_TIMEOUT_MS),
      OPERATIONS: 'message,chat',
    };
    relays = [await startRelay(upstream.url, environment), await startRelay(upstream.url, environment)];
    cookie = await (relays[0] as TestRelay).signIn();
  });
  afterAll(async () => {
    await stopNginx();
    await stopBalancers();
    for (const relay of relays) await relay.close();
    await upstream.close();
    stopRedis();
  });

  const ways: [string, Balancer][] = [
    ['nginx', nginx],
    ['HAProxy', simple('haproxy')],
    ['Caddy', simple('caddy')],
  ];
  for (const [name, balancer] of ways) {
    balancer.describe(`behind ${name}`, () => {
      let send: Awaited<ReturnType<Balancer['start']>>;
      beforeAll(async () => {
        const [first, second] = relays as [TestRelay, TestRelay];
        send = await balancer.start([first.port, second.port]);
      });

      /** Sends one after the other. As soon as the bot service has one, the relays end what they carry. */
      async function sendAndEnd(all: readonly Sent[]): Promise<number[]> {
        const answers: number[] = [];
        for (const sent of all) {
          const before = upstream.requests.length;
          const answer = send(sent, cookie);
          await until(() => upstream.requests.length > before);
          for (const { open } of relays) open.endAll(new Problem('draining', 'Gone.'));
          answers.push(await answer);
          expect(upstream.requests).toHaveLength(before + 1);
        }
        return answers;
      }

      async function sendTogether(all: readonly Sent[]): Promise<number[]> {
        const before = upstream.requests.length;
        const answers = await Promise.all(all.map((sent) => send(sent, cookie)));
        expect(upstream.requests).toHaveLength(before + all.length);
        return answers;
      }

      test.each([
        ['message', '502 of a relay that shuts down', 502, BOT_PATH],
        ['message', '504 of a bot service that does not answer', 504, BOT_PATH],
        ['feedback', '502 of a relay that shuts down', 502, FEEDBACK_PATH],
      ])('never get a %s again after the %s', (_name, _what, status, path) =>
        whileAwake(async () => {
          // Each relay gets some of them.
          const sent = Array.from({ length: 3 }, () => ({ ...POST, path }));
          const answers = status === 502 ? await sendAndEnd(sent) : await sendTogether(sent);
          expect(answers).toEqual([status, status, status]);
        })(),
      );

      test(
        'never get an operation again that is under way when a relay shuts down',
        whileAwake(async () => {
          expect(await sendAndEnd([CLEAR, REMOVE])).toEqual([502, 502]);
        }),
      );
    });
  }
});
