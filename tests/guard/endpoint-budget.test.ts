import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { pacing } from '../../src/pace/pacing.ts';
import { type SlotResult, type SlotWaits, slotWaits } from '../../src/pace/slot-waits.ts';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH, MESSAGE } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startTestApp } from '../harness/relay/test-app.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    RATE_LIMIT: '2',
    RATE_WINDOW_MS: '600000',
    BOTS: 'acme/*,other/helper',
  });
});
afterAll(() => pair.close());

const send = (path: string): Promise<Answer> =>
  call(pair.relay.port, path, {
    method: 'POST',
    headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
    body: MESSAGE,
  });
const pathOf = (namespace: string, bot: string) => `/generic/ns/${namespace}/bot-provider/${bot}/message/sse`;

describe('the budget of a bot', () => {
  test('is in the headers of every answer, and a refusal has Retry-After', async () => {
    const before = pair.upstream.requests.length;
    const path = pathOf('acme', 'told');
    const [first, second, third] = [await send(path), await send(path), await send(path)];
    expect([first, second, third].map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(first.headers).toMatchObject({
      ratelimit: '"endpoint";r=1;t=600',
      'ratelimit-policy': '"endpoint";q=2;w=600',
    });
    expect(first.headers).not.toHaveProperty('retry-after');
    expect(second.headers.ratelimit).toMatch(/^"endpoint";r=0;t=600$/);
    expectProblem(third, 429, 'rate_limited');
    expect(third.headers.ratelimit).toMatch(/^"endpoint";r=0;t=(600|59\d)$/);
    expect(third.headers['ratelimit-policy']).toBe('"endpoint";q=2;w=600');
    expect(third.headers['retry-after']).toMatch(/^(60[01]|59\d)$/);
    expect(pair.upstream.requests.length - before).toBe(2);
  });

  test('is separate for each bot and namespace', async () => {
    expect([await send(BOT_PATH), await send(BOT_PATH)].map(({ status }) => status)).toEqual([200, 200]);
    expect((await send(BOT_PATH)).status).toBe(429);
    expect((await send(pathOf('acme', 'another'))).headers.ratelimit).toMatch(/r=1/);
    expect((await send(pathOf('other', 'helper'))).headers.ratelimit).toMatch(/r=1/);
  });

  test('is the same for all spellings of a bot in the path', async () => {
    const spellings = [
      ['acme', 'spelled'],
      ['acme', '%73pelled'],
      ['%61cme', 'spelle%64'],
      ['%61%63me', 'spelled'],
    ];
    const statuses = [];
    for (const [namespace = '', bot = ''] of spellings)
      statuses.push((await send(pathOf(namespace, bot))).status);
    expect(statuses).toEqual([200, 200, 429, 429]);
  });

  test('is shared by all sessions', async () => {
    const path = pathOf('acme', 'shared');
    await send(path);
    await send(path);
    const other = await pair.relay.signIn({ name: 'bob', password: 'canary-password-77aa' });
    const answer = await call(pair.relay.port, path, {
      method: 'POST',
      headers: { Cookie: other, 'Content-Type': 'application/json' },
      body: MESSAGE,
    });
    expectProblem(answer, 429, 'rate_limited');
  });
});

describe('the headers of a budget', () => {
  const slot = { endpoint: 'acme/helper', ticket: '1', startedAt: 0, waitLeftMs: 0, onTrial: false };
  test.each<
    [SlotResult['slot'], waitMs: number, remaining: number, resetMs: number, string, string | undefined]
  >([
    [slot, 0, 4, 26, '"endpoint";r=4;t=1', undefined],
    [slot, 0, 0, 1025, '"endpoint";r=0;t=1', undefined],
    [slot, 0, 0, 10, '"endpoint";r=0;t=0', undefined],
    [slot, 1500, 0, 2500, '"endpoint";r=0;t=3', undefined],
    [undefined, 0.2, 0, 1025.1, '"endpoint";r=0;t=2', '1'],
    [undefined, 1000, 0, 2000, '"endpoint";r=0;t=2', '1'],
    [undefined, 1001, 0, 2000, '"endpoint";r=0;t=2', '2'],
  ])('are whole seconds, rounded up, for the slot %j and a wait of %d ms', async (...row) => {
    const [taken, waitMs, remaining, resetMs, rateLimit, retryAfter] = row;
    const asked: unknown[] = [];
    const reservation = {
      state: taken ? 'granted' : 'refused',
      ticket: '',
      waitMs,
      remaining,
      resetMs,
      trialLeftMs: 0,
      onTrial: false,
    } as const;
    const rate = { limit: 5, windowMs: 1500, maxWaitMs: 0 };
    const slots: SlotWaits = {
      ...slotWaits(memoryBudgets(rate), rate),
      take: async (request: unknown) => {
        asked.push(request);
        return taken ? { slot: taken, reservation } : { reservation };
      },
    };
    const stage = await startTestApp((app) => {
      app.get('/', async (_req, res) => {
        const holders = { user: 'u1', address: 'a1' };
        const { signal } = new AbortController();
        const message = { endpoint: 'acme/helper', holders, signal, log: res.locals };
        for (const [name, value] of Object.entries(await pacing(slots, rate)(message).start()))
          res.setHeader(name, value);
        res.end();
      });
    });
    const { status, headers } = await call(stage.port, '/');
    await stage.close();
    expect(asked).toEqual([{ endpoint: 'acme/helper', holders: ['u1', 'a1'] }]);
    expect(status).toBe(taken ? 200 : 429);
    expect(headers.ratelimit).toBe(rateLimit);
    expect(headers['ratelimit-policy']).toBe('"endpoint";q=5;w=2');
    expect(headers['retry-after']).toBe(retryAfter);
  });
});
