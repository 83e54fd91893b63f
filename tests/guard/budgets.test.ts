import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import {
  type EndpointBudgets,
  JITTER_MS,
  limitFor,
  MAX_FUTURE_SLOTS,
  type Rate,
  type Reservation,
  withJitterMargin,
} from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';

interface Slot {
  at: number;
  readonly ticket: string;
}

/**
 * What budgets must answer, by trying every time at which a slot leaves a window, since nothing else makes room. A slot
 * fits if no window with it has more than the limit; one behind all others fits if the window that ends with it has not.
 */
function modelBudgets(rate: Rate, now: () => number): EndpointBudgets {
  const { windowMs } = rate;
  const endpoints = new Map<string, { slots: Slot[]; pausedUntil: number }>();
  /** Those of each ticket. */
  const holdersOf = new Map<string, readonly string[]>();
  const at = (name: string) => {
    const endpoint = endpoints.get(name) ?? { slots: [], pausedUntil: 0 };
    endpoints.set(name, endpoint);
    endpoint.slots = endpoint.slots.filter((slot) => slot.at + windowMs > now());
    return { endpoint, limit: limitFor(rate, name) };
  };
  const first = (from: number, slots: readonly Slot[], fits: (time: number) => boolean) => {
    const times = [from, ...slots.map((slot) => slot.at + windowMs)];
    return Math.min(...times.filter((time) => time >= from && fits(time)));
  };
  const fitsAmong = (slots: readonly Slot[], limit: number) => (time: number) => {
    const times = [...slots.map((slot) => slot.at), time];
    const inWindow = (from: number) => times.filter((one) => one >= from && one < from + windowMs).length;
    return times.every((from) => from > time || from + windowMs <= time || inWindow(from) <= limit);
  };
  const fitsBehind = (slots: readonly Slot[], limit: number) => (time: number) =>
    slots.filter((slot) => slot.at > time - windowMs).length < limit;
  const inOrder = (slots: readonly Slot[]) =>
    slots.toSorted((one, other) => one.at - other.at || Number(one.ticket) - Number(other.ticket));
  const others = (slots: readonly Slot[], ticket: string | undefined) =>
    slots.filter((slot) => slot.ticket !== ticket);

  return {
    async reserve({ endpoint: name, holders, maxWaitMs, maxFutureSlots = MAX_FUTURE_SLOTS }) {
      const { endpoint, limit } = at(name);
      const time = first(
        Math.max(now(), endpoint.pausedUntil),
        endpoint.slots,
        fitsAmong(endpoint.slots, limit),
      );
      const ownOf = (holder: string) =>
        inOrder(
          endpoint.slots.filter((slot) => slot.at > now() && holdersOf.get(slot.ticket)?.includes(holder)),
        );
      const full = holders.map(ownOf).filter((own) => own.length >= maxFutureSlots);
      const nextOwn = Math.max(...full.map(([next]) => next?.at ?? 0));
      const waitMs = time - now();
      const state =
        waitMs > maxWaitMs ? 'refused' : waitMs > 0 && full.length > 0 ? 'share_taken' : 'granted';
      const ticket = String(holdersOf.size + 1);
      holdersOf.set(ticket, holders);
      if (state === 'granted') endpoint.slots.push({ at: time, ticket });
      const last = Math.max(now() - windowMs, ...endpoint.slots.map((slot) => slot.at));
      return {
        ...{ state, ticket, waitMs: state === 'share_taken' ? nextOwn - now() : waitMs },
        remaining: Math.max(0, limit - endpoint.slots.length),
        resetMs: last + windowMs - now(),
      };
    },
    async start(name, ticket) {
      const { endpoint, limit } = at(name);
      const own = endpoint.slots.find((slot) => slot.ticket === ticket);
      const rest = others(endpoint.slots, ticket);
      const from = Math.max(now(), endpoint.pausedUntil, own?.at ?? 0);
      const started = rest.filter((slot) => slot.at <= now());
      const time = first(from, started, fitsBehind(started, limit));
      endpoint.slots = [...rest, { at: time, ticket }];
      return time - now();
    },
    async sent(name, ticket) {
      const { endpoint } = at(name);
      endpoint.slots = [...others(endpoint.slots, ticket), { at: now(), ticket }];
    },
    async cancel(name, ticket) {
      const { endpoint } = at(name);
      endpoint.slots = others(endpoint.slots, ticket);
    },
    async pause(name, pauseMs, firstTicket) {
      const { endpoint, limit } = at(name);
      endpoint.pausedUntil = Math.max(endpoint.pausedUntil, now() + pauseMs);
      const rest = inOrder(others(endpoint.slots, firstTicket));
      const placed = rest.filter((slot) => slot.at <= now());
      const refused = firstTicket === undefined ? [] : [{ at: now(), ticket: firstTicket }];
      for (const slot of [...refused, ...rest.filter((one) => one.at > now())]) {
        const time = first(Math.max(endpoint.pausedUntil, slot.at), placed, fitsBehind(placed, limit));
        placed.push({ ...slot, at: time });
      }
      endpoint.slots = placed;
    },
  };
}

const BOT = 'acme/helper';
const OTHER = 'acme/other';
/** The time of the test clock in ms, which changes only when a test sets it. */
let now = 0;
let server: RedisServer;
let redis: Redis;

/** Runs scripts on the clock above instead of Redis's own. */
function onTestClock(real: Redis): Redis {
  return {
    ...real,
    script(lua) {
      const clocked = lua
        .replace("redis.call('TIME')", '{ ARGV[#ARGV], 0 }')
        .replace('clock[1] * 1000000', 'clock[1]');
      if (clocked === lua) throw new Error('the script asks for the time in another way');
      const run = real.script(clocked);
      return (keys, args) => run(keys, [...args, String(Math.round(now * 1000))]);
    },
  };
}

/** Redis forgets by its own clock: all times are so long that no test takes them. */
const SECOND = 1000;
const WINDOW = 20 * SECOND;
/** Often the same time as another one, or as it and a window; sometimes a millisecond beside that. */
const seconds = (min: number, max: number) =>
  fc.tuple(fc.integer({ min, max }), fc.constantFrom(0, 0, 0, 0, -1, 1)).map(([n, off]) => n * SECOND + off);
const step = fc.record({
  kind: fc.constantFrom('reserve', 'reserve', 'reserve', 'start', 'start', 'sent', 'cancel', 'pause'),
  afterMs: fc.oneof({ weight: 3, arbitrary: seconds(1, 6) }, seconds(7, 60)),
  endpoint: fc.constantFrom(BOT, BOT, BOT, OTHER),
  /** Whose name is a part of another's. */
  holders: fc.constantFrom(['ann'], ['an'], ['nn'], ['ann', 'here'], ['ben', 'here'], ['ben', 'her']),
  maxWaitMs: fc.constantFrom(0, 15 * SECOND, 60 * SECOND, 1000 * SECOND),
  maxFutureSlots: fc.constantFrom(1, 2, 3, undefined),
  /** Which of the messages that were granted a slot. */
  which: fc.nat(),
  pauseMs: seconds(1, 50),
  isOwn: fc.boolean(),
});
const schedule = fc.record({
  limit: fc.integer({ min: 1, max: 4 }),
  own: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
  steps: fc.array(step, { minLength: 5, maxLength: 60, size: 'max' }),
});

/** Both answer each call of any schedule alike, and no more messages start in a window than may. */
const asTheModel = (make: (rate: Rate) => EndpointBudgets | Promise<EndpointBudgets>) =>
  fc.asyncProperty(schedule, async ({ limit, own, steps }) => {
    // No clock of Redis shows less than a window.
    now = 1000 * SECOND;
    const limitOf = (endpoint: string) => (endpoint === OTHER ? own : undefined);
    const rate = { limit, windowMs: WINDOW, limitOf };
    const both = [modelBudgets(rate, () => now), await make(rate)] as const;
    /** The tickets of each message, and when it has started. */
    const messages: { endpoint: string; tickets: string[]; startedAt: number | undefined }[] = [];
    let wasSent = false;
    for (const { kind, afterMs, which, pauseMs, isOwn, ...request } of steps) {
      now += afterMs;
      const message = messages[which % messages.length];
      const ask = async (budgets: EndpointBudgets, i: number) => {
        if (kind === 'reserve') return budgets.reserve(request as Parameters<typeof budgets.reserve>[0]);
        if (!message) return 0;
        const ticket = message.tickets[i] as string;
        if (kind === 'pause') return budgets.pause(message.endpoint, pauseMs, isOwn ? ticket : undefined);
        return budgets[kind](message.endpoint, ticket);
      };
      const [right, answer] = await Promise.all(both.map(ask));
      const shown = (one: unknown) => (typeof one === 'object' ? { ...one, ticket: '' } : one);
      expect(shown(answer)).toEqual(shown(right));
      if (kind === 'sent') wasSent = true;
      if (kind === 'start' && answer === 0 && message) message.startedAt = now;
      if ((kind === 'cancel' || (kind === 'pause' && isOwn)) && message) message.startedAt = undefined;
      if (kind !== 'reserve') continue;
      const [{ ticket, state, waitMs }, { ticket: other }] = [right, answer] as [Reservation, Reservation];
      if (state !== 'granted') continue;
      const startedAt = waitMs === 0 ? now : undefined;
      messages.push({ endpoint: request.endpoint, tickets: [ticket, other], startedAt });
    }
    if (wasSent) return;
    for (const endpoint of [BOT, OTHER]) {
      const starts = messages.flatMap((one) =>
        one.endpoint === endpoint && one.startedAt !== undefined ? [one.startedAt] : [],
      );
      const inWindow = (from: number) => starts.filter((at) => at >= from && at < from + WINDOW).length;
      expect(Math.max(0, ...starts.map(inWindow))).toBeLessThanOrEqual(limitFor(rate, endpoint));
    }
  });

const RATE = { limit: 5, windowMs: 1_000_000 };
const W = RATE.windowMs;

test('a rate gets a margin for the jitter on the way to the service', () => {
  expect(JITTER_MS).toBeGreaterThan(0);
  expect(withJitterMargin({ limit: 5, windowMs: 1000 })).toEqual({ limit: 5, windowMs: 1000 + JITTER_MS });
});

describe('budgets in memory', () => {
  const request = (endpoint: string) => ({ endpoint, holders: ['h'], maxWaitMs: 0 });

  test('answer as the model, whatever is asked', () =>
    fc.assert(
      asTheModel((rate) => memoryBudgets(rate, () => now)),
      { numRuns: 800 },
    ));

  test('are forgotten once their endpoint was idle and not paused for a window', async () => {
    now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: 1000 }, () => now);
    const { ticket } = await budgets.reserve(request('acme/bot-0'));
    await budgets.pause('acme/bot-0', 5000);
    await budgets.cancel('acme/bot-0', ticket);
    for (let n = 1; n < 1000; n += 1) {
      now = n < 600 ? 0 : 1;
      await budgets.reserve(request(`acme/bot-${n}`));
    }
    const forgotten = jest.spyOn(Map.prototype, 'delete');
    now = 1000;
    for (let n = 0; n < 50; n += 1) await budgets.reserve(request(`acme/new-${n}`));
    const names = forgotten.mock.calls.map(([name]) => name);
    jest.restoreAllMocks();
    expect(names).toEqual(Array.from({ length: 599 }, (_, n) => `acme/bot-${n + 1}`));
    expect(await budgets.reserve(request('acme/bot-0'))).toMatchObject({ state: 'refused', waitMs: 4000 });
  });

  test('run on the monotonic clock of the process', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: 600_000 });
    await budgets.reserve(request(BOT));
    advanceClocks({ date: 700_000 });
    expect(await budgets.reserve(request(BOT))).toMatchObject({ state: 'refused' });
    advanceClocks({ monotonic: 700_000 });
    expect(await budgets.reserve(request(BOT))).toMatchObject({ state: 'granted' });
    jest.restoreAllMocks();
  });
});

describeWithRedis('budgets in Redis', () => {
  const forget = () => server.command('FLUSHALL');
  beforeAll(async () => {
    server = await startRedis();
    redis = await connected(server.url, 500);
  });
  afterEach(async () => {
    jest.restoreAllMocks();
    await forget();
  });
  afterAll(() => {
    redis?.close();
    stopRedis();
  });
  const ask = (budgets: EndpointBudgets, holder: string, maxWaitMs = 0, endpoint = BOT) =>
    budgets.reserve({ endpoint, holders: [holder], maxWaitMs });

  test('answer as the model, whatever is asked', () =>
    fc.assert(
      asTheModel(async (rate) => {
        await forget();
        return redisBudgets(onTestClock(redis), rate);
      }),
      { numRuns: 60 },
    ));

  test('forget no message on a clock that is set back, and let none wait longer than before', async () => {
    now = 5 * W;
    const budgets = redisBudgets(onTestClock(redis), RATE);
    for (let n = 0; n < 5; n++) await ask(budgets, `h${n}`);
    const { ticket } = await ask(budgets, 'waiting', W);
    now = 2 * W;
    for (const n of [1, 2]) expect([n, await ask(budgets, 'h')]).toMatchObject([n, { waitMs: W }]);
    expect(await ask(budgets, 'h', W)).toMatchObject({ waitMs: W, remaining: 0, resetMs: 2 * W });
    now += W - 1;
    expect(await budgets.start(BOT, ticket)).toBe(1);
    now += 1;
    expect(await budgets.start(BOT, ticket)).toBe(0);
  });

  test('stay paused on a clock that is set back for as long as the service asked for', async () => {
    now = 5 * W;
    const budgets = redisBudgets(onTestClock(redis), RATE);
    const { ticket } = await ask(budgets, 'h');
    await budgets.pause(BOT, 2 * W, ticket);
    now = 2 * W;
    expect(await ask(budgets, 'h')).toMatchObject({ state: 'refused', waitMs: 2 * W });
    expect(await budgets.start(BOT, ticket)).toBe(2 * W);
    const left = Number(await server.command('PTTL', `bot-relay:{budget:${BOT}}:state`));
    expect(left).toBeGreaterThan(2 * W - 100_000);
  });

  test('grant one holder two future slots, and compare holders by their whole names', async () => {
    now = 0;
    const budgets = redisBudgets(onTestClock(redis), RATE);
    for (let n = 0; n < 5; n++) await ask(budgets, `h${n}`);
    const answers = [];
    for (const holder of ['greedy', 'greedy', 'greedy', 'greed', 'reedy'])
      answers.push((await ask(budgets, holder, W)).state);
    expect(answers).toEqual(['granted', 'granted', 'share_taken', 'granted', 'granted']);
  });

  test('start nothing for a window after Redis was lost, but for 5 s at most', async () => {
    // Whole ms, so that nothing is rounded up.
    const backAt = Math.ceil(performance.now()) - 500;
    jest.spyOn(performance, 'now').mockReturnValue(backAt + 500);
    now = 0;
    for (const [windowMs, heldMs] of [
      [2000, 1500],
      [W, 4500],
    ] as const) {
      const budgets = redisBudgets({ ...onTestClock(redis), backAt: () => backAt }, { limit: 5, windowMs });
      const endpoint = `acme/${windowMs}`;
      expect((await ask(budgets, 'h', 10_000, endpoint)).waitMs).toBe(heldMs);
      expect(await budgets.start(endpoint, '1 somebody waiting')).toBe(heldMs);
    }
  });

  test('are shared by all instances', async () => {
    const other = await connected(server.url, 500);
    const [here, there] = [redis, other].map((one) => redisBudgets(one, { limit: 5, windowMs: 600_000 }));
    const asked = Array.from({ length: 12 }, (_, n) =>
      ask((n % 2 ? here : there) as EndpointBudgets, `h${n}`),
    );
    const states = (await Promise.all(asked)).map(({ state }) => state);
    other.close();
    expect(states.filter((state) => state === 'granted')).toHaveLength(5);
  });

  test('work again after SCRIPT FLUSH and after Redis has forgotten everything', async () => {
    const budgets = redisBudgets(redis, { limit: 1, windowMs: 600_000 });
    await ask(budgets, 'a');
    await server.command('SCRIPT', 'FLUSH');
    expect(await ask(budgets, 'b')).toMatchObject({ state: 'refused' });
    await forget();
    expect(await ask(budgets, 'c')).toMatchObject({ state: 'granted' });
  });

  test('take one round trip for each call, by the clock of Redis, under keys that live as long as they are needed', async () => {
    const windowMs = 600_000;
    const budgets = redisBudgets(redis, { limit: 1, windowMs });
    // A minute is longer than this test takes.
    const isAbout = (ms: unknown, most: number) => Number(ms) > most - 60_000 && Number(ms) <= most;
    const left = async (key: string) => server.command('PTTL', `bot-relay:{budget:${BOT}}:${key}`);
    await ask(budgets, 'a');
    expect([isAbout(await left('slots'), windowMs), isAbout(await left('state'), windowMs)]).toEqual([
      true,
      true,
    ]);
    await server.command('CONFIG', 'RESETSTAT');
    const { ticket, waitMs } = await ask(budgets, 'b', 900_000);
    expect(isAbout(waitMs, windowMs)).toBe(true);
    await budgets.start(BOT, ticket);
    // The slot counts for a window from when it comes.
    expect(isAbout(await left('slots'), 2 * windowMs)).toBe(true);
    await budgets.cancel(BOT, ticket);
    const stats = String(await server.command('INFO', 'commandstats'));
    expect(stats).toMatch(/cmdstat_evalsha:calls=3,/);
    expect(stats).not.toMatch(/cmdstat_(eval|script):/);
    await budgets.pause(BOT, 3_000_000);
    expect(isAbout(await left('state'), 3_000_000)).toBe(true);
    expect(await server.command('DBSIZE')).toBe(2);
  });
});
