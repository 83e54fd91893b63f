import { afterAll, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { countAwakeMs } from '../support/awake.ts';
import { parseAnswer } from '../support/call.ts';
import {
  codeOf,
  mostInWindow,
  overtaking,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../support/numbered-messages.ts';
import type { RawClient } from '../support/raw-client.ts';
import { MESSAGE, OTHER_USER } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const WINDOW = 1000;

const pairs: WithNumberedMessages[] = [];
afterAll(() => Promise.all(pairs.map((pair) => pair.close())));

async function start(environment: Record<string, string>): Promise<WithNumberedMessages> {
  const pair = await startWithNumberedMessages({ RATE_WINDOW_MS: String(WINDOW), ...environment });
  pairs.push(pair);
  return pair;
}

const most = ({ arrivals }: WithNumberedMessages, windowMs = WINDOW) =>
  mostInWindow(
    arrivals.map(({ at }) => at),
    windowMs,
  );

/** Sends messages over new connections, since one that must connect could be overtaken; returns the statuses. */
async function sendInOrder(pair: WithNumberedMessages, count: number, cookies: string[]): Promise<number[]> {
  const clients: RawClient[] = [];
  for (const n of range(count)) {
    const cookie = cookies[n % cookies.length] as string;
    const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
    clients.push(pair.ask({ cookie, body, headers: ['Connection: close'] }));
    await sleep(5);
  }
  await Promise.all(clients.map(({ closed }) => closed));
  return clients.map((client) => parseAnswer(client.text()).status);
}

describe('a message beyond the limit', () => {
  test.concurrent('waits for its slot: all start, in the order of their arrival, and never too many', async () => {
    const pair = await start({ RATE_LIMIT: '3', RATE_MAX_WAIT_MS: '20000' });
    const cookies = [pair.cookie, ...(await Promise.all(range(4).map(() => pair.relay.signIn())))];
    expect(await sendInOrder(pair, 10, cookies)).toEqual(range(10).map(() => 200));
    expect(pair.started().sort((a, b) => a - b)).toEqual(range(10));
    expect(overtaking(pair.arrivals, WINDOW)).toEqual([]);
    expect(most(pair)).toBe(3);
    const { slotWaitMs } = await pair.relay.logLine((line) => Number(line.slotWaitMs) > 1.5 * WINDOW);
    expect(slotWaitMs).toBeLessThan(6 * WINDOW);
  });

  test.concurrent('is refused at once if its slot comes too late, with a correct Retry-After', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '2000' });
    const from = performance.now();
    const awakeMs = countAwakeMs();
    await pair.send(0);
    const refused = await pair.send(1);
    // It did not wait for RATE_MAX_WAIT_MS.
    expect(awakeMs()).toBeLessThan(1000);
    const afterMs = performance.now() - from;
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'rate_limited']);
    const seconds = Number(refused.headers.get('retry-after'));
    expect(afterMs + seconds * 1000).toBeGreaterThanOrEqual(3000);
    expect(seconds).toBeLessThanOrEqual(4);
    // The refusal did not move the window: a later message still gets the next slot.
    await sleep(1200);
    expect((await pair.send(2)).status).toBe(200);
    expect(pair.started()).toEqual([0, 2]);
  });

  test.concurrent('is refused at once if RATE_MAX_WAIT_MS is 0', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '0' });
    const answers = await Promise.all([pair.send(0), pair.send(1)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 429]);
  });

  test.concurrent('waits behind earlier messages of the same user, and hardly delays another user', async () => {
    const LONG = 1200;
    // The window is long enough for the other message to arrive within it.
    const pair = await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '60000' });
    const other = await pair.relay.signIn(OTHER_USER);
    const many = range(6).map((n) => pair.send(n));
    await until(() => pair.arrivals.length >= 2);
    const { status, headers } = await pair.send(100, { cookie: other });
    expect(status).toBe(200);
    const { at: startedAt = 0 } = pair.arrivals.find(({ n }) => n === 100) ?? {};
    const line = await pair.relay.logLine(({ requestId }) => requestId === headers.get('x-request-id'));
    const arrivedAt = startedAt - Number(line.slotWaitMs);
    // Messages with the same slot time may arrive in any order.
    const earlier = pair.arrivals.filter(({ at }) => at > arrivedAt && startedAt - at > LONG / 4);
    expect(earlier.length).toBeLessThanOrEqual(2);
    await Promise.all(many);
    expect(pair.arrivals).toHaveLength(7);
    expect(
      overtaking(
        pair.arrivals.filter(({ n }) => n < 100),
        LONG,
      ),
    ).toEqual([]);
    expect(most(pair, LONG)).toBe(2);
  });

  test.concurrent('is refused at once if too many messages of its user wait', async () => {
    const pair = await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '4000' });
    const sent = range(30).map((n) => pair.send(n));
    expect((await sent[29])?.status).toBe(429);
    expect(pair.arrivals.length).toBeLessThanOrEqual(2);
    const statuses = (await Promise.all(sent)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200).length).toBe(4);
  });
});

describe('a message that waits', () => {
  test.concurrent('is never sent if its client leaves, and its slot goes to the next', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '4000', RATE_MAX_WAIT_MS: '6000' });
    await pair.send(0);
    const leaving = new AbortController();
    const left = pair.send(1, { signal: leaving.signal }).catch(() => 'left');
    await until(() => pair.relay.open.count() === 1);
    await sleep(50);
    leaving.abort();
    expect(await left).toBe('left');
    const line = await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    expect(line).toMatchObject({ level: 'info' });
    await until(() => pair.relay.open.count() === 0);
    // Behind another message it would have to wait for 8 s.
    expect((await pair.send(2)).status).toBe(200);
    expect(pair.started()).toEqual([0, 2]);
    expect(pair.relay.logs.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
  });

  test.concurrent('makes way for the next of its user if its client leaves while it is in the queue', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '700', RATE_MAX_WAIT_MS: '60000' });
    const leaving = new AbortController();
    const first = range(3).map((n) => pair.send(n));
    await until(() => pair.arrivals.length === 1);
    const left = range(3).map((n) => pair.send(10 + n, { signal: leaving.signal }).catch(() => 'left'));
    await until(() => pair.relay.open.count() >= 5);
    const last = pair.send(3);
    await sleep(50);
    leaving.abort();
    expect(await Promise.all(left)).toEqual(['left', 'left', 'left']);
    await Promise.all([...first, last]);
    expect(pair.started().sort()).toEqual([0, 1, 2, 3]);
  });

  test.concurrent(
    'ends with its session, and is never sent',
    whileAwake(async () => {
      const pair = await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '60000' });
      const other = await pair.relay.signIn(OTHER_USER);
      await pair.send(0, { cookie: other });
      const waiting = pair.send(1);
      await until(() => pair.relay.open.count() === 1);
      await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie: pair.cookie } });
      const answer = await waiting;
      expect([answer.status, await codeOf(answer)]).toEqual([401, 'session_ended']);
      await sleep(1.5 * WINDOW);
      expect(pair.started()).toEqual([0]);
    }),
  );

  test.concurrent('ends at the end of the grace period of a shutdown', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '5000', RATE_MAX_WAIT_MS: '60000' });
    await pair.send(0);
    const waiting = pair.send(1);
    await until(() => pair.relay.open.count() === 1);
    pair.relay.open.endAll(new Problem('draining', 'Shutting down.'));
    const answer = await waiting;
    expect([answer.status, await codeOf(answer)]).toEqual([503, 'draining']);
  });
});
