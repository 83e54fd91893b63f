import type { ServerResponse } from 'node:http';
import { request } from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, afterEach, expect, jest, test } from '@jest/globals';
import { until } from '../harness/clock/until.ts';
import {
  describeWithLoadBalancers,
  startCaddy,
  startHaproxy,
  startNginx,
} from '../harness/relay/deployed-load-balancers.ts';
import { type FakeRelay, startFakeRelay } from '../harness/relay/fake-relay.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';

jest.setTimeout(300_000);

const STREAMS = 3_000;
const AT_ONCE = 50;
const EVENT = 'data: 1\n\n';

/** All streams on one worker, as a machine with few cores can have it. */
const oneWorker = (ports: readonly [number, number]) =>
  startNginx(ports, { 'worker_processes auto': 'worker_processes 1' });

/** A relay that begins each stream. */
const begin = (res: ServerResponse) =>
  void res.writeHead(200, { 'Content-Type': 'text/event-stream' }).write(EVENT);

/** Opens a stream; resolves with its status and first event. The stream stays open. */
function openStream(origin: string, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/json' };
    const outgoing = request(origin + BOT_PATH, { method: 'POST', headers, ca, agent: false }, (answer) => {
      answer.once('data', (event) => resolve(`${answer.statusCode} ${event}`));
      answer.on('error', () => {});
    });
    outgoing.on('error', reject);
    outgoing.end(MESSAGE);
  });
}

describeWithLoadBalancers('a load balancer of deploy/', () => {
  let relays: FakeRelay[] = [];
  afterEach(async () => {
    for (const relay of relays) await relay.close();
  });
  afterAll(stopPrograms);

  test.each([
    ['nginx', oneWorker],
    ['HAProxy', startHaproxy],
    ['Caddy', startCaddy],
  ])('carries 3,000 streams, and then one more: %s', async (_name, start) => {
    const ports = [await freePort(), await freePort()] as const;
    relays = [await startFakeRelay(ports[0], begin), await startFakeRelay(ports[1], begin)];
    const { origin, certificate } = await start(ports);
    const streams: string[] = [];
    for (let opened = 0; opened < STREAMS; opened += AT_ONCE) {
      const some = Array.from({ length: AT_ONCE }, () => openStream(origin, certificate));
      streams.push(...(await Promise.all(some)));
    }
    expect(new Set(streams)).toEqual(new Set([`200 ${EVENT}`]));
    await until(() => relays.every(({ seen }) => seen.length > 0));
    expect(await openStream(origin, certificate)).toBe(`200 ${EVENT}`);
  });

  test('writes no alert about a stream that is longer than the readiness of a relay is kept: nginx', async () => {
    const ports = [await freePort(), await freePort()] as const;
    relays = [await startFakeRelay(ports[0], begin), await startFakeRelay(ports[1], begin)];
    const { origin, certificate, errorLog } = await startNginx(ports);
    for (let n = 0; n < 6; n += 1) await openStream(origin, certificate);
    // nginx looks for inactive entries every 10 s.
    await wait(25_000);
    expect(errorLog()).not.toContain('inactive cache entry');
  });
});
