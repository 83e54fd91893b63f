import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { openBrowser } from '../harness/browser/browser.ts';
import { type Answer, call } from '../harness/clients/call.ts';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { describeWithNginx, startNginx } from '../harness/relay/deployed-load-balancers.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { describeThrough, type LoadBalancer, startLoadBalancer } from '../harness/relay/load-balancers.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

const FEEDBACK_PATH = BOT_PATH.replace(/sse$/, 'feedback');

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly type?: string;
  readonly body?: string;
}

interface Balancer {
  readonly describe: typeof describeWithNginx;
  /** Starts it in front of both relays; returns a function that sends a request through it. */
  readonly start: (
    ports: readonly [number, number],
  ) => Promise<(sent: Sent, cookie: string) => Promise<Pick<Answer, 'status' | 'body'>>>;
}

const POST: Sent = { method: 'POST', path: BOT_PATH, type: 'application/json', body: MESSAGE };
const textOf = (n: number) => JSON.stringify({ ...JSON.parse(MESSAGE), text: `text ${n}` });
const CLEAR: Sent = {
  method: 'POST',
  path: '/ns/acme/bot-provider/helper/channel/clear?custom_channel_id=c1',
};
const REMOVE: Sent = { method: 'DELETE', path: '/ns/acme/bot-provider/helper/channel?custom_channel_id=c1' };

/** Common configurations, which send a request again that has not left. */
const LINES = {
  haproxy:
    'retries 3\n  option redispatch 1\n  option httpchk GET /readyz\n  default-server check inter 1s fall 2',
  caddy: 'lb_try_duration 5s\n    health_uri /readyz\n    health_interval 1s',
};

const common = (name: LoadBalancer & keyof typeof LINES): Balancer => ({
  describe: describeThrough(name),
  async start(relays) {
    const port = await freePort();
    await startLoadBalancer(name, { port, relays, lines: LINES[name] });
    return async ({ path, type, ...sent }, cookie) => {
      const headers = { Cookie: cookie, ...(type !== undefined && { 'Content-Type': type }) };
      return call(port, path, { ...sent, headers });
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
      const answer = await browser.send(path, { headers, ...sent });
      browser.close();
      return answer;
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
      OPERATIONS: 'message,chat',
    };
    relays = [await startRelay(upstream.url, environment), await startRelay(upstream.url, environment)];
    cookie = await (relays[0] as TestRelay).signIn();
  });
  afterAll(async () => {
    await stopPrograms();
    for (const relay of relays) await relay.close();
    await upstream.close();
    stopRedis();
  });

  const ways: [string, Balancer][] = [
    ['nginx', nginx],
    ['HAProxy', common('haproxy')],
    ['Caddy', common('caddy')],
  ];
  for (const [name, balancer] of ways) {
    balancer.describe(`behind ${name}`, () => {
      let send: Awaited<ReturnType<Balancer['start']>>;
      beforeAll(async () => {
        const [first, second] = relays as [TestRelay, TestRelay];
        send = await balancer.start([first.port, second.port]);
        await until(async () => (await send({ method: 'GET', path: '/readyz' }, '')).status === 200, 50);
      });

      /** Sends one after the other. As soon as the bot service has one, the relays end what they carry, with `ended`. */
      async function sendAndEnd(ended: 'draining' | 'upstream_timeout', all: readonly Sent[]) {
        const answers: { status: number; code: string }[] = [];
        for (const sent of all) {
          const before = upstream.requests.length;
          const answer = send(sent, cookie);
          await until(() => upstream.requests.length > before);
          for (const { parts } of relays) parts.open.endAll(new Problem(ended, 'Gone.'));
          const { status, body } = await answer;
          const isStream = body.startsWith('event: error\n');
          const { code } = isStream ? errorEventIn(body) : (JSON.parse(body) as { code: string });
          answers.push({ status, code });
          expect(upstream.requests).toHaveLength(before + 1);
        }
        return answers;
      }

      test.each([
        ['message', 'error event of a relay that shuts down', 'draining', 'answer_lost', 200, BOT_PATH],
        [
          'message',
          'error event of a bot service that does not answer',
          'upstream_timeout',
          'upstream_timeout',
          200,
          BOT_PATH,
        ],
        ['feedback', '502 of a relay that shuts down', 'draining', 'answer_lost', 502, FEEDBACK_PATH],
      ] as const)('never get a %s again after the %s', async (_name, _what, ended, code, status, path) => {
        // Each relay gets some of them. Each is a message of its own: the same bytes would join its run.
        const sent = [1, 2, 3].map((n) => ({ ...POST, path, body: textOf(n) }));
        expect(await sendAndEnd(ended, sent)).toEqual(Array(3).fill({ status, code }));
      });

      test('never get an operation again that is under way when a relay shuts down', async () => {
        const lost = { status: 502, code: 'answer_lost' };
        expect(await sendAndEnd('draining', [CLEAR, REMOVE])).toEqual([lost, lost]);
      });
    });
  }
});
