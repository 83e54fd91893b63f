import { hash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import { CONFIRM } from '../../src/runs/run-lua.ts';
import { EVENTS } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

const BUDGET = { RATE_LIMIT: '20', RATE_WINDOW_MS: '600000' };

async function start(environment: Record<string, string>): Promise<void> {
  all = await startJoinInstances(1, { ...BUDGET, ...environment }, (_request, socket) => {
    socket.write(wholeStream(...EVENTS));
    return undefined;
  });
}

let messages = 0;
async function send(): Promise<void> {
  await all.say(0, { customMessageId: `message-number-${++messages}` }).closed;
  await runsEnded(all.redis);
  await until(
    async () => ((await all.redis.command('KEYS', 'bot-relay:streams:*')) as string[]).length === 0,
  );
}

describeWithRedis('round trips to Redis before a message leaves', () => {
  // The session with its limits, its use, the name, the place, the slot, and that it is about to leave.
  test.each([
    [{}, 6],
    [{ JOIN: 'off' }, 5],
  ])('with %j, they are %i', async (environment, count) => {
    await start(environment);
    // Redis loads the scripts, and the relay connects to its bot.
    for (let n = 0; n < 2; n++) await send();
    const sent = (all.wires[0] as NonNullable<(typeof all.wires)[0]>).record();
    await send();
    const departure = sent.findIndex(({ text }) => text.includes(hash('sha1', CONFIRM)));
    const trips = sent
      .slice(0, departure + 1)
      .filter(({ by, text }) => by === 'client' && !text.includes('PING'));
    expect(trips).toHaveLength(count);
  });
});

describe('the limit of a session', () => {
  const LIMIT_MS = 2_000;
  /** How long a stream may stay open after the end of its session, in ms. */
  const SOON_MS = 5_000;

  let all: Instances;
  afterEach(() => all.close());

  test('a silent stream ends soon after the idle limit of its session, and not before', async () => {
    all = await startInstances({ count: 1, shared: false, limits: { idleMs: LIMIT_MS } });
    const cookie = await (all.relays[0] as TestRelay).signIn();
    const from = performance.now();
    const stream = await all.stream(0, cookie);
    expect(await stream.over()).toEqual({ code: 'session_ended', complete: true });
    const tookMs = performance.now() - from;
    expect(tookMs).toBeGreaterThan(LIMIT_MS - 10);
    expect(tookMs).toBeLessThan(LIMIT_MS + SOON_MS);
  });
});
