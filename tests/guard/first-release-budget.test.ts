import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { type EndpointBudgets, withJitterMargin } from '../../src/pace/budgets.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis, RedisScript } from '../../src/storage/redis.ts';
import { mostInWindow, range } from '../support/numbered-messages.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';

jest.setTimeout(30_000);

const FIRST_SCRIPT = readFileSync(new URL('../support/first-budget-script.lua', import.meta.url), 'utf8');
const RATE = withJitterMargin({ limit: 5, windowMs: 1000 });
/** Messages of each instance. */
const MESSAGES = 6;

const connections: Redis[] = [];
/** Sends the script as an instance of the first release does, with its keys and its first three arguments. */
let first: (bot: 'shared' | 'paused', ...args: string[]) => ReturnType<RedisScript>;
let updated: EndpointBudgets[];

type FirstReply = [state: string, wait: number, remaining: number, reset: number, ticket: string];

/** A message at an instance of the first release; resolves with the time of its start. */
async function startAtFirst(n: number): Promise<number> {
  const reply = await first('shared', 'reserve', `first-${n} a-unique-id-${n}`, '10000000', '2');
  const [state, wait, , , ticket] = reply as FirstReply;
  expect(state).toBe('granted');
  for (let left = wait; left > 0; left = (await first('shared', 'start', ticket)) as number)
    await sleep(left / 1000);
  return performance.now();
}

/** A message at an instance of today. */
async function startAt(budgets: EndpointBudgets, holder: string): Promise<number> {
  const endpoint = 'acme/shared';
  const { state, ticket, waitMs } = await budgets.reserve({ endpoint, holders: [holder], maxWaitMs: 10_000 });
  expect(state).toBe('granted');
  for (let left = waitMs; left > 0; left = (await budgets.start(endpoint, ticket)).waitMs) await sleep(left);
  return performance.now();
}

describeWithRedis('an instance of the first release beside two of today', () => {
  beforeAll(async () => {
    const { url } = await startRedis();
    for (const _ of range(3)) connections.push(await connected(url));
    const [old, ...others] = connections as [Redis, Redis, Redis];
    const run = old.script(FIRST_SCRIPT);
    first = (bot, ...args) =>
      run(
        [`bot-relay:{budget:acme/${bot}}:slots`, `bot-relay:{budget:acme/${bot}}:state`],
        ['5', '1025000', '0', ...args],
      );
    updated = others.map((redis) => redisBudgets(redis, RATE));
  });
  afterAll(() => {
    for (const redis of connections) redis.close();
    stopRedis();
  });

  test('has one budget with them: at most 5 messages start in any second', async () => {
    const times = await Promise.all(
      range(MESSAGES).flatMap((n) => [
        startAtFirst(n),
        ...updated.map((budgets, at) => startAt(budgets, `today-${at}-${n}`)),
      ]),
    );
    expect(times).toHaveLength(3 * MESSAGES);
    expect(mostInWindow(times, 1000)).toBe(5);
  });

  test('has the same pauses: each keeps to what the other was asked to wait', async () => {
    const [today] = updated as [EndpointBudgets];
    const request = { endpoint: 'acme/paused', holders: ['today'], maxWaitMs: 60_000 };
    const { ticket } = await today.reserve(request);
    const asFirst = async (n: number) =>
      (await first('paused', 'reserve', `first-${n} a-unique-id-${n}`, '60000000', '2')) as FirstReply;
    const [, , , , firstTicket] = await asFirst(0);
    await first('paused', 'penalize', firstTicket, '10000000');
    expect((await today.reserve(request)).waitMs).toBeGreaterThan(8_000);
    await today.penalize('acme/paused', ticket, { believedMs: 30_000, askedMs: 30_000, withoutSlot: false });
    const [, wait] = await asFirst(1);
    expect(wait).toBeGreaterThan(28_000_000);
  });
});
