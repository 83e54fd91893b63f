import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type EndpointBudgets, withJitterMargin } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { range } from '../support/numbered-messages.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { type CrowdResult, NEW_MESSAGES, startApart, startCrowd } from '../support/resumption-crowd.ts';

const RATE = { limit: 5, windowMs: 400, maxWaitMs: 4000 };
const KEPT = withJitterMargin(RATE);
/** As it was before resumptions had slots. */
const PREVIOUS_SCRIPT = readFileSync(
  new URL('../support/previous-budget-script.lua', import.meta.url),
  'utf8',
);
/** How many windows resumptions are counted for where nobody else waits. */
const WINDOWS = 8;

/** 20 new messages of one user, and of 20 users at another endpoint, wait beside resumptions. */
function startBoth(instances: readonly EndpointBudgets[], resuming = instances): Promise<CrowdResult[]> {
  const crowd = { instances, resuming, rate: RATE };
  return Promise.all(
    [1, 20].map((newUsers) => startCrowd({ ...crowd, newUsers, endpoint: `acme/for-${newUsers}` })),
  );
}

/** How many may start in this time. */
const mostIn = (ms: number) => RATE.limit * (Math.floor(ms / RATE.windowMs) + 2);

function expectFairness(results: readonly CrowdResult[]): void {
  for (const { lastNewMs, refused, resumptions, messages } of results) {
    expect([refused, messages]).toEqual([0, NEW_MESSAGES]);
    expect(resumptions).toBeLessThanOrEqual(messages);
    expect(resumptions + messages).toBeLessThanOrEqual(mostIn(lastNewMs));
  }
}

function expectUse({ resumptions, messages, ms }: Awaited<ReturnType<typeof startApart>>): void {
  expect(resumptions).toBeGreaterThan(0.7 * messages);
  expect(resumptions).toBeLessThanOrEqual(mostIn(ms));
}

describe('300 resumptions in one instance', () => {
  let fair: CrowdResult[];
  let apart: Awaited<ReturnType<typeof startApart>>;
  // All of them wait at the same time.
  beforeAll(async () => {
    const instances = [memoryBudgets(KEPT)];
    [fair, apart] = await Promise.all([startBoth(instances), startApart(instances, RATE, WINDOWS)]);
  });

  test('let 20 new messages of 1 or 20 users start in time, and take every second slot at most', () => {
    expectFairness(fair);
  });

  test('use the budget if nobody else waits', () => {
    expectUse(apart);
  });
});

describeWithRedis('300 resumptions in three instances with one Redis', () => {
  const connections: Redis[] = [];
  let fair: CrowdResult[];
  let besidePrevious: CrowdResult[];
  let apart: Awaited<ReturnType<typeof startApart>>;
  beforeAll(async () => {
    const { url } = await startRedis();
    const { url: otherUrl } = await startRedis();
    const connect = async (to: string) => {
      const connection = await connected(to);
      connections.push(connection);
      return connection;
    };
    const instances: EndpointBudgets[] = [];
    for (const _ of range(3)) instances.push(redisBudgets(await connect(url), KEPT));
    const old = await connect(otherUrl);
    const previous = redisBudgets({ ...old, script: () => old.script(PREVIOUS_SCRIPT) }, KEPT);
    const updated: EndpointBudgets[] = [];
    for (const _ of range(2)) updated.push(redisBudgets(await connect(otherUrl), KEPT));
    [fair, besidePrevious, apart] = await Promise.all([
      startBoth(instances),
      startBoth([previous], updated),
      startApart(instances, RATE, WINDOWS),
    ]);
  });
  afterAll(() => {
    for (const redis of connections) redis.close();
    stopRedis();
  });

  test('let 20 new messages of 1 or 20 users start in time, and take every second slot at most', () => {
    expectFairness(fair);
  });

  test('do so also if the new messages are at an instance of the previous version', () => {
    expectFairness(besidePrevious);
  });

  test('use the budget if nobody else waits', () => {
    expectUse(apart);
  });
});
