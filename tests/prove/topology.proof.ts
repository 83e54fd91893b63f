import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type Browser, openBrowser } from '../harness/browser/browser.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  describeWithLoadBalancers,
  describeWithNginx,
  startCaddy,
  startHaproxy,
  startNginx,
} from '../harness/relay/deployed-load-balancers.ts';
import { freePort } from '../harness/relay/free-port.ts';
import {
  freshFolder,
  type RelayProcess,
  startProcess,
  stopProcesses,
  usersFile,
} from '../harness/relay/process.ts';
import { stopPrograms } from '../harness/relay/programs.ts';
import { BOT_PATH, CANARY, MESSAGE, USER } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

jest.setTimeout(120_000);

/** At least this many messages are sent while both relays restart. */
const MESSAGES = Number(process.env.RESTART_MESSAGES ?? 500);
const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
/** A bot that sends a few words and then is silent for longer than any test takes. */
const SLOW = ECHO.replace('echo', 'slow');
const COMPLETE = /event: asgard\.run\.done\n.*\n\n$/;
/** nginx draws a relay for each: all of them reach the same one once in two thousand million times. */
const STREAMS = 32;
/** A pause between messages, in ms, so that they take longer than the restarts. */
const PAUSE_MS = 150;

type Index = 0 | 1;
const browsers: Browser[] = [];

/** The services of `docker-compose.yml` as processes of this machine, before a bot service or the demo's. */
async function startTopology(
  environment: Record<string, string>,
  startFront = startNginx,
  upstream?: string,
) {
  const redis = await startRedis();
  const folder = freshFolder({
    bot_api_keys: CANARY.key,
    session_secrets: CANARY.sessionSecret,
    channel_secret: CANARY.channelSecret,
    redis_url: redis.url,
    'users.json': usersFile(),
  });
  const UPSTREAM_BASE_URL = upstream ?? (await startDemoBot(folder));
  const ports = [await freePort(), await freePort()] as const;
  const front = await startFront(ports);
  const started: { readonly index: Index; readonly relay: RelayProcess }[] = [];
  async function start(index: Index) {
    const relay = startProcess({
      folder,
      environment: {
        ...{ NODE_ENV: 'production', HOST: '127.0.0.1', PORT: String(ports[index]) },
        ...{ PUBLIC_URL: front.origin, TRUST_PROXY: '1', UPSTREAM_BASE_URL, BOTS: 'demo/*' },
        ...{ UPSTREAM_API_KEYS_FILE: 'bot_api_keys', SESSION_SECRETS_FILE: 'session_secrets' },
        ...{ CHANNEL_SECRET_FILE: 'channel_secret', REDIS_URL_FILE: 'redis_url' },
        ...{ RATE_LIMIT: '1000', MAX_STREAMS_PER_USER: '100' },
        ...{ CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0', ...environment },
      },
    });
    started.push({ index, relay });
    await relay.listening();
    await relay.waitFor(/"msg":"redis ready"/);
  }
  await Promise.all([start(0), start(1)]);
  const open = () => {
    const browser = openBrowser(front.origin, front.certificate);
    browsers.push(browser);
    return browser;
  };
  // A load balancer needs a moment until it has found the first relay.
  const probe = open();
  await until(async () => (await probe.send('/readyz')).status === 200, 50);
  const running = (index: Index) => started.findLast((one) => one.index === index)?.relay as RelayProcess;
  return {
    /** All relays that were started; the last one of each index is running. */
    started,
    running,
    /** Stops a relay and starts another one in its place. */
    async restart(index: Index) {
      running(index).signal('SIGTERM');
      await running(index).exited;
      await start(index);
    },
    /** A browser that has signed in through the load balancer. */
    async signIn() {
      const browser = open();
      const body = JSON.stringify({ username: USER.name, password: USER.password });
      expect((await browser.send('/auth/login', { body })).status).toBe(200);
      return browser;
    },
  };
}

async function startDemoBot(folder: string): Promise<string> {
  const args = ['service', '--keys-file', 'bot_api_keys', '--rate-limit', '10000'];
  const environment = { SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' };
  return `http://127.0.0.1:${await startProcess({ folder, args, environment }).listening()}`;
}

async function stopTopology(): Promise<void> {
  for (const browser of browsers.splice(0)) browser.close();
  await stopPrograms();
  stopRedis();
  await stopProcesses();
}

interface Sending {
  readonly path: string;
  readonly bodyOf: (n: number) => string;
  readonly isWhole: (body: string) => boolean;
  readonly lanes: number;
  readonly pauseMs: number;
  readonly enough: (sent: number) => boolean;
}

/** Sends messages one after the other in several loops until `enough`; returns the answers that were not whole. */
async function keepSending(browser: Browser, { path, bodyOf, isWhole, lanes, pauseMs, enough }: Sending) {
  const failed: unknown[] = [];
  let sent = 0;
  const lane = async () => {
    while (!enough(sent)) {
      const answer = await browser.send(path, { body: bodyOf(sent++) }).catch((error: unknown) => error);
      if (!isWhole((answer as { body?: string }).body ?? '')) failed.push(answer);
      await sleep(pauseMs);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return { sent, failed };
}

/** Opens a stream that stays open; resolves with its first bytes. */
function begin(browser: Browser, on: { cut(): void; end(): void }): Promise<void> {
  return new Promise((resolve) => {
    browser.send(SLOW, { body: MESSAGE, onData: () => resolve() }).then(on.end, on.cut);
  });
}

describeWithRedis('two relays with one Redis', () => {
  describeWithNginx('behind nginx', () => {
    let topology: Awaited<ReturnType<typeof startTopology>>;
    // Both cases share it; the second one kills a relay.
    beforeAll(async () => {
      topology = await startTopology({ SHUTDOWN_DELAY_MS: '3000', SHUTDOWN_GRACE_MS: '10000' });
    });
    afterAll(stopTopology);

    /** How many answers a relay has carried to their end, by its log. */
    const carried = (index: Index) =>
      topology
        .running(index)
        .stdout()
        .match(/"status":200,"outcome":"ok".*"bot":"demo\/echo"/g)?.length ?? 0;

    test('share the sessions and the messages', async () => {
      const browser = await topology.signIn();
      const ask = () => browser.send(ECHO, { body: MESSAGE });
      const answers = await Promise.all(Array.from({ length: 20 }, ask));
      expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
      await until(() => carried(0) + carried(1) >= 20);
      expect(carried(0)).toBeGreaterThan(0);
      expect(carried(1)).toBeGreaterThan(0);
    });

    test('lose only the streams of one that is killed', async () => {
      const browser = await topology.signIn();
      let cut = 0;
      let whole = 0;
      const on = { cut: () => cut++, end: () => whole++ };
      await Promise.all(Array.from({ length: STREAMS }, () => begin(browser, on)));
      topology.running(0).signal('SIGKILL');
      await topology.running(0).exited;
      const { failed } = await keepSending(browser, {
        ...{ path: ECHO, bodyOf: () => MESSAGE, isWhole: (body) => COMPLETE.test(body) },
        ...{ lanes: 4, pauseMs: 0, enough: (sent) => sent >= 20 },
      });
      expect(failed).toEqual([]);
      topology.running(1).signal('SIGTERM');
      const [, open] = await topology.running(1).waitFor(/"openMessages":(\d+),"msg":"shutting down"/);
      expect(Number(open)).toBeGreaterThan(0);
      expect(cut).toBeGreaterThan(0);
      expect({ cut, whole }).toEqual({ cut: STREAMS - Number(open), whole: 0 });
    });
  });

  describe('are restarted one after the other, and no message fails or runs twice', () => {
    let upstream: RawUpstream;
    afterEach(async () => {
      await stopTopology();
      await upstream.close();
    });

    async function restartBoth(startFront: typeof startNginx): Promise<void> {
      // Two events with a pause, so that some streams are open whenever a relay is told to stop.
      upstream = await startRawUpstream(async (socket) => {
        socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));
        await sleep(100);
        socket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
      });
      const topology = await startTopology({ BOTS: 'acme/helper' }, startFront, upstream.url);
      const carries = (index: Index) => /"outcome":"ok".*"bot":/.test(topology.running(index).stdout());
      let restarting = true;
      const sending = keepSending(await topology.signIn(), {
        path: BOT_PATH,
        // Each with another text.
        bodyOf: (n) => JSON.stringify({ customChannelId: 'c1', text: `message ${n}` }),
        isWhole: (body) => body === 'data: 1\n\ndata: 2\n\n',
        ...{ lanes: 8, pauseMs: PAUSE_MS, enough: (sent) => sent >= MESSAGES && !restarting },
      });
      for (const index of [0, 1] as const) {
        // The relay to stop has open messages, and the load balancer uses the other one again.
        await until(() => carries(0) && carries(1));
        await topology.restart(index);
      }
      restarting = false;
      const { sent, failed } = await sending;
      expect(failed).toEqual([]);
      const texts = upstream.requests.map(({ body }) => (JSON.parse(String(body)) as { text: string }).text);
      expect(new Set(texts).size).toBe(sent);
      expect(texts).toHaveLength(sent);
      for (const { relay } of topology.started.slice(0, 2))
        expect(await relay.exited).toEqual({ code: 0, signal: null });
    }

    describeWithNginx('behind', () => test('nginx', () => restartBoth(startNginx)));
    describeWithLoadBalancers('behind', () => {
      test('HAProxy', () => restartBoth(startHaproxy));
      test('Caddy', () => restartBoth(startCaddy));
    });
  });
});
