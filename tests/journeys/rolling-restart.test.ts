import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { Browser } from '../support/browser.ts';
import { describeWithLoadBalancers, startCaddy, startHaproxy } from '../support/deployed-load-balancers.ts';
import { describeWithNginx, startNginx } from '../support/nginx.ts';
import { until } from '../support/pair.ts';
import type { RelayProcess } from '../support/process.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { BOT_PATH } from '../support/relay.ts';
import { startTopology, stopTopology } from '../support/topology.ts';

jest.setTimeout(120_000);

const MESSAGES = 500;
const LANES = 8;
/** Messages go on for longer than the restarts take. */
const PAUSE_MS = 150;

/** Whether a relay has carried a message to its end. */
const carries = (relay: RelayProcess) => /"outcome":"ok".*"bot":/.test(relay.stdout());

let upstream: RawUpstream;
afterEach(async () => {
  await stopTopology();
  await upstream.close();
});

/** Streams of two events, a moment apart, so that some are under way whenever a relay is told to stop. */
const startBot = () =>
  startRawUpstream(async (socket) => {
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
    await sleep(100);
    socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
  });

/** Sends messages, each with a text of its own, until `enough`; returns what did not come whole. */
async function keepSending(browser: Browser, enough: (sent: number) => boolean) {
  const failed: unknown[] = [];
  let sent = 0;
  const lane = async () => {
    while (!enough(sent)) {
      const body = JSON.stringify({ customChannelId: 'c1', text: `message ${sent++}` });
      const answer = await browser.send(BOT_PATH, { body }).catch((error: unknown) => error);
      if ((answer as { body?: string }).body !== 'data: 1\n\ndata: 2\n\n') failed.push(answer);
      await sleep(PAUSE_MS);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return { sent, failed };
}

const fronts = [
  ['nginx', startNginx, '1', describeWithNginx],
  ['HAProxy', startHaproxy, '2', describeWithLoadBalancers],
  ['Caddy', startCaddy, '1', describeWithLoadBalancers],
] as const;

describeWithRedis('two relays in production', () => {
  describe.each(fronts)('behind %s', (_name, startFront, WORKERS, describeWithFront) => {
    describeWithFront(`of ${WORKERS} worker(s) each`, () => {
      test('are restarted one after the other, and no message fails or runs twice', async () => {
        upstream = await startBot();
        const environment = {
          WORKERS,
          BOTS: 'acme/helper',
          RATE_LIMIT: '1000',
          MAX_STREAMS_PER_USER: '100',
          CLIENT_LIMIT_PER_ADDRESS: '0',
          CLIENT_LIMIT_PER_SESSION: '0',
        };
        const topology = await startTopology(environment, { startFront, upstreamUrl: upstream.url });
        let restarting = true;
        const sending = keepSending(await topology.signIn(), (sent) => sent >= MESSAGES && !restarting);
        for (const index of [0, 1] as const) {
          // What is stopped has messages under way, and the load balancer has found the other one again.
          await until(() => carries(topology.running(0)) && carries(topology.running(1)));
          await topology.restart(index);
        }
        restarting = false;
        const { sent, failed } = await sending;
        expect(failed).toEqual([]);
        const texts = upstream.requests.map(
          ({ body }) => (JSON.parse(body.toString()) as { text: string }).text,
        );
        expect(new Set(texts).size).toBe(sent);
        expect(texts).toHaveLength(sent);
        for (const { relay } of topology.started.slice(0, 2)) {
          expect(await relay.exited).toEqual({ code: 0, signal: null });
        }
      });
    });
  });
});
