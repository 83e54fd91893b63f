import { expect } from '@jest/globals';
import type { Browser } from '../browser/browser.ts';
import { sleep } from '../clock/sleep.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../service/raw-upstream.ts';
import type { RelayProcess } from './process.ts';
import { BOT_PATH } from './relay.ts';
import { until } from './relay-and-upstream.ts';
import { startTopology, stopTopology, type TopologyOptions } from './topology.ts';

const LANES = 8;
/** A pause between messages, in ms, so that they take longer than the restarts. */
const PAUSE_MS = 150;

/** Whether a relay has carried an answer to its end. */
const carries = (relay: RelayProcess) => /"outcome":"ok".*"bot":/.test(relay.stdout());

let upstream: RawUpstream;

/** Streams of two events with a pause, so that some are open whenever a relay is told to stop. */
const startBot = () =>
  startRawUpstream(async (socket) => {
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
    await sleep(100);
    socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
  });

/** Sends messages, each with another text, until `enough`; returns the answers that were not complete. */
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

export interface RollingRestart extends Pick<TopologyOptions, 'startLoadBalancer'> {
  /** At least this many messages are sent; more if the restarts take longer. */
  readonly messages: number;
  /** Further variables of each relay. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Restarts two relays in production one after the other; expects that no message fails or runs twice. */
export async function expectRestartsLoseNothing(options: RollingRestart): Promise<void> {
  const { messages, startLoadBalancer, environment } = options;
  upstream = await startBot();
  const settings = {
    BOTS: 'acme/helper',
    RATE_LIMIT: '1000',
    MAX_STREAMS_PER_USER: '100',
    CLIENT_LIMIT_PER_ADDRESS: '0',
    CLIENT_LIMIT_PER_SESSION: '0',
    ...environment,
  };
  const topology = await startTopology(settings, {
    ...(startLoadBalancer && { startLoadBalancer }),
    upstreamUrl: upstream.url,
  });
  let restarting = true;
  const sending = keepSending(await topology.signIn(), (sent) => sent >= messages && !restarting);
  for (const index of [0, 1] as const) {
    // The relay to stop has open messages, and the load balancer uses the other one again.
    await until(() => carries(topology.running(0)) && carries(topology.running(1)));
    await topology.restart(index);
  }
  restarting = false;
  const { sent, failed } = await sending;
  expect(failed).toEqual([]);
  const texts = upstream.requests.map(({ body }) => (JSON.parse(body.toString()) as { text: string }).text);
  expect(new Set(texts).size).toBe(sent);
  expect(texts).toHaveLength(sent);
  for (const { relay } of topology.started.slice(0, 2)) {
    expect(await relay.exited).toEqual({ code: 0, signal: null });
  }
}

/** Stops all that was started; for `afterEach`. */
export async function stopRollingRestart(): Promise<void> {
  await stopTopology();
  await upstream.close();
}
