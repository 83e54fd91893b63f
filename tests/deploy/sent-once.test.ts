import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { openBrowser } from '../support/browser.ts';
import { call } from '../support/call.ts';
import { describeWithNginx, startNginx, stopNginx } from '../support/nginx.ts';
import { until } from '../support/pair.ts';
import { type RawUpstream, startRawUpstream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';
import { describeWithBalancers, startBalancer, stopBalancers } from '../support/simple-balancers.ts';

const RESPONSE_TIMEOUT_MS = 1_000;

interface Balancer {
  readonly describe: typeof describeWithNginx;
  /** Starts it in front of both relays; the returned function posts a message through it, and resolves with the status. */
  readonly start: (ports: readonly [number, number]) => Promise<(cookie: string) => Promise<number>>;
}

const simple = (name: 'haproxy' | 'caddy'): Balancer => ({
  describe: describeWithBalancers,
  async start(ports) {
    const port = await startBalancer(name, ports);
    return async (cookie) => {
      const headers = { 'Content-Type': 'application/json', Cookie: cookie };
      return (await call(port, BOT_PATH, { method: 'POST', headers, body: MESSAGE })).status;
    };
  },
});

const nginx: Balancer = {
  describe: describeWithNginx,
  async start(ports) {
    const { origin, certificate } = await startNginx(ports);
    return async (cookie) => {
      const browser = openBrowser(origin, certificate);
      const headers = { cookie, origin: 'http://app.example.com' };
      const { status } = await browser.send(BOT_PATH, { headers, body: MESSAGE });
      browser.close();
      return status;
    };
  },
};

describeWithRedis('two relays', () => {
  let upstream: RawUpstream;
  let relays: TestRelay[];
  beforeEach(async () => {
    const redis = await startRedis();
    // Takes every message, and answers none.
    upstream = await startRawUpstream(() => {});
    const environment = {
      REDIS_URL: redis.url,
      UPSTREAM_RESPONSE_TIMEOUT_MS: String(RESPONSE_TIMEOUT_MS),
    };
    relays = [await startRelay(upstream.url, environment), await startRelay(upstream.url, environment)];
  });
  afterEach(async () => {
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
      test.each([
        ['502 of a relay that shuts down', 502],
        ['504 of a bot service that does not answer', 504],
      ])('never see a message again for the %s', async (_what, status) => {
        const [first, second] = relays as [TestRelay, TestRelay];
        const post = await balancer.start([first.port, second.port]);
        const cookie = await first.signIn();
        // Both relays are drawn for some of them.
        for (let count = 1; count <= 3; count++) {
          const answered = post(cookie);
          await until(() => upstream.requests.length === count);
          if (status === 502) for (const { open } of relays) open.endAll(new Problem('draining', 'Gone.'));
          expect(await answered).toBe(status);
          expect(upstream.requests).toHaveLength(count);
        }
      });
    });
  }
});
