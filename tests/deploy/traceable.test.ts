import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Browser, openBrowser } from '../harness/browser/browser.ts';
import { until } from '../harness/clock/until.ts';
import {
  describeWithLoadBalancers,
  type LoadBalancer,
  startCaddy,
  startHaproxy,
  stopLoadBalancers,
} from '../harness/relay/deployed-load-balancers.ts';
import { type FakeRelay, type Reply, startFakeRelay } from '../harness/relay/fake-relay.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { describeWithNginx, startNginx, stopNginx } from '../harness/relay/nginx.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';

type Front = Pick<LoadBalancer, 'origin' | 'certificate' | 'log'>;
type Ports = readonly [number, number];

async function nginx(ports: Ports): Promise<Front> {
  const front = await startNginx(ports);
  return {
    ...front,
    log: () =>
      front
        .accessLog()
        .map((line) => `${JSON.stringify(line)}\n`)
        .join(''),
  };
}

const PROGRAMS = [
  { file: 'deploy/nginx.conf', start: nginx, describeWith: describeWithNginx },
  { file: 'deploy/haproxy.cfg', start: startHaproxy, describeWith: describeWithLoadBalancers },
  { file: 'deploy/Caddyfile', start: startCaddy, describeWith: describeWithLoadBalancers },
];

const REQUEST_ID = '0b5c0f6e-0d7f-4b7e-9a44-3a5fd3a1c001';

/** Names its answer as a relay does, and has what must be in no log. */
const answer: Reply = (res) => {
  res
    .writeHead(302, {
      'X-Request-Id': REQUEST_ID,
      Location: 'https://idp.example.com/?state=private',
      'Set-Cookie': 'sid=private',
      'Content-Disposition': 'attachment; filename=private',
    })
    .end('private');
};

describe.each(PROGRAMS)('the log of $file', ({ start, describeWith }) => {
  describeWith('in front of two relays', () => {
    let front: Front;
    let relays: readonly FakeRelay[];
    let browser: Browser | undefined;
    beforeAll(async () => {
      const ports: Ports = [await freePort(), await freePort()];
      relays = [await startFakeRelay(ports[0], answer), await startFakeRelay(ports[1], answer)];
      front = await start(ports);
      browser = openBrowser(front.origin, front.certificate);
    });
    afterAll(async () => {
      browser?.close();
      await stopNginx();
      await stopLoadBalancers();
      for (const relay of relays) await relay.close();
    });

    const send = (path: string) => {
      const headers = { cookie: 'sid=private', referer: 'https://example.com/?private' };
      return browser?.send(`${path}?x=private`, { body: MESSAGE, headers });
    };
    /** The lines about a path, when there are some. */
    async function linesOf(path: string): Promise<string[]> {
      const lines = () =>
        front
          .log()
          .split('\n')
          .filter((line) => line.includes(path));
      await until(() => lines().length > 0);
      return lines();
    }

    test('has the address of the client and the request id of the answer in one line, and nothing private', async () => {
      expect((await send(BOT_PATH))?.status).toBe(302);
      const lines = await linesOf(BOT_PATH);
      expect(lines).toHaveLength(1);
      for (const part of ['127.0.0.1', REQUEST_ID]) expect(lines[0]).toContain(part);
      expect(front.log()).not.toContain('private');
    });

    test('has nothing private of a request that no relay has answered', async () => {
      for (const relay of relays) relay.reply = (res) => res.destroy();
      const path = BOT_PATH.replace('helper', 'unanswered');
      expect((await send(path))?.status).toBe(502);
      expect((await linesOf(path)).join()).toContain('127.0.0.1');
      expect(front.log()).not.toContain('private');
    });
  });
});
