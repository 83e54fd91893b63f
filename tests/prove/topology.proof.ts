import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Browser } from '../harness/browser/browser.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { describeWithNginx } from '../harness/relay/nginx.ts';
import { MESSAGE } from '../harness/relay/relay.ts';
import { type Index, startTopology, stopTopology, type Topology } from '../harness/relay/topology.ts';

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
/** A bot that sends a few words and then is silent for longer than any test takes. */
const SLOW = ECHO.replace('echo', 'slow');
const COMPLETE = /event: asgard\.run\.done\n.*\n\n$/;
const PATIENCE_MS = 60_000;
/** nginx draws a relay for each: all of them reach the same one once in two thousand million times. */
const STREAMS = 32;

let topology: Topology;
const ask = (browser: Browser) => browser.send(ECHO, { body: MESSAGE });

/** How many answers a relay has carried to their end, by its log. */
function carried(index: Index): number {
  const logs = topology.started.filter((one) => one.index === index).map(({ relay }) => relay.stdout());
  return logs.join('').match(/"status":200,"outcome":"ok".*"bot":"demo\/echo"/g)?.length ?? 0;
}

/** Resolves when the logs of the relays name at least `count` messages. */
async function allCarried(count: number): Promise<void> {
  while (carried(0) + carried(1) < count) await sleep(10);
}

/** Sends messages one after the other in several loops until `enough`; returns the answers that were not complete. */
async function keepSending(browser: Browser, lanes: number, enough: (sent: number) => boolean) {
  const failed: unknown[] = [];
  let sent = 0;
  const lane = async () => {
    while (!enough(sent)) {
      sent++;
      const answer = await ask(browser).catch((error: unknown) => error);
      if (!COMPLETE.test((answer as { body?: string }).body ?? '')) failed.push(answer);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return { sent, failed };
}

describeWithNginx('behind nginx', () => {
  describeWithRedis('two relays with one Redis', () => {
    // Both cases share it; the second one kills a relay.
    beforeAll(async () => {
      topology = await startTopology({
        RATE_LIMIT: '1000',
        MAX_STREAMS_PER_USER: '100',
        CLIENT_LIMIT_PER_ADDRESS: '0',
        CLIENT_LIMIT_PER_SESSION: '0',
        SHUTDOWN_DELAY_MS: '3000',
        SHUTDOWN_GRACE_MS: '10000',
      });
    }, PATIENCE_MS);
    afterAll(stopTopology, PATIENCE_MS);

    test(
      'share the sessions and the messages',
      async () => {
        const browser = await topology.signIn();
        const answers = await Promise.all(Array.from({ length: 20 }, () => ask(browser)));
        expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
        await allCarried(20);
        expect(carried(0)).toBeGreaterThan(0);
        expect(carried(1)).toBeGreaterThan(0);
      },
      PATIENCE_MS,
    );

    test(
      'lose only the streams of one that is killed',
      async () => {
        const browser = await topology.signIn();
        let cut = 0;
        let whole = 0;
        const begun = Array.from({ length: STREAMS }, () =>
          begin(browser, { cut: () => cut++, end: () => whole++ }),
        );
        await Promise.all(begun);
        topology.running(0).signal('SIGKILL');
        await topology.running(0).exited;
        const { failed } = await keepSending(browser, 4, (sent) => sent >= 20);
        expect(failed).toEqual([]);
        topology.running(1).signal('SIGTERM');
        const [, open] = await topology.running(1).waitFor(/"openMessages":(\d+),"msg":"shutting down"/);
        expect(Number(open)).toBeGreaterThan(0);
        expect(cut).toBeGreaterThan(0);
        expect({ cut, whole }).toEqual({ cut: STREAMS - Number(open), whole: 0 });
      },
      PATIENCE_MS,
    );
  });
});

/** Opens a stream that stays open; resolves with its first bytes. */
function begin(browser: Browser, on: { cut(): void; end(): void }): Promise<void> {
  return new Promise((resolve) => {
    browser.send(SLOW, { body: MESSAGE, onData: () => resolve() }).then(on.end, on.cut);
  });
}
