import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { codeOf, mostInWindow, overtaking, type PacedPair, range, startPaced } from '../support/paced.ts';
import { until } from '../support/pair.ts';
import { OTHER_USER } from '../support/relay.ts';

const WINDOW = 600;

let pair: PacedPair;
afterEach(() => pair.close());

async function start(environment: Record<string, string>, answer?: Parameters<typeof startPaced>[1]) {
  pair = await startPaced({ RATE_WINDOW_MS: String(WINDOW), ...environment }, answer);
}

const most = (windowMs = WINDOW) =>
  mostInWindow(
    pair.arrivals.map(({ at }) => at),
    windowMs,
  );

async function sendInOrder(count: number, cookies: string[]): Promise<Promise<Response>[]> {
  const sent: Promise<Response>[] = [];
  for (const n of range(count)) {
    sent.push(pair.send(n, { cookie: cookies[n % cookies.length] as string }));
    await sleep(5);
  }
  return sent;
}

describe('a message beyond the limit', () => {
  test('waits for its slot: all start, in the order in which they came, and never too many (L2)', async () => {
    await start({ RATE_LIMIT: '3', RATE_MAX_WAIT_MS: '20000' });
    const cookies = [pair.cookie, ...(await Promise.all(range(4).map(() => pair.relay.signIn())))];
    const answers = await Promise.all(await sendInOrder(10, cookies));
    expect(answers.map(({ status }) => status)).toEqual(range(10).map(() => 200));
    expect(pair.started().sort((a, b) => a - b)).toEqual(range(10));
    expect(overtaking(pair.arrivals, WINDOW)).toEqual([]);
    expect(most()).toBe(3);
    const { slotWaitMs } = await pair.relay.logLine((line) => Number(line.slotWaitMs) > 1.5 * WINDOW);
    expect(slotWaitMs).toBeLessThan(6 * WINDOW);
  });

  test('is refused at once if its slot is too far away, and is then told the truth (L3)', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '2000' });
    await pair.send(0);
    const before = performance.now();
    const refused = await pair.send(1);
    expect(performance.now() - before).toBeLessThan(1000);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'rate_limited']);
    expect(refused.headers.get('retry-after')).toMatch(/^[34]$/);
    // It did not push the window: who comes soon enough still gets the next slot.
    await sleep(1200);
    expect((await pair.send(2)).status).toBe(200);
    expect(pair.started()).toEqual([0, 2]);
  });

  test('is refused at once where nobody waits', async () => {
    await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '0' });
    const answers = await Promise.all([pair.send(0), pair.send(1)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 429]);
  });

  test('of a user who sends many waits behind their own; another user is hardly delayed', async () => {
    const LONG = 1000;
    // Long enough for the other message to arrive within one window.
    await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '60000' });
    const other = await pair.relay.signIn(OTHER_USER);
    const many = range(10).map((n) => pair.send(n));
    await until(() => pair.arrivals.length >= 2);
    const before = pair.arrivals.length;
    expect((await pair.send(100, { cookie: other })).status).toBe(200);
    const { at: startedAt } = pair.arrivals.find(({ n }) => n === 100) as { at: number };
    // Messages whose slots come together race on the wire.
    const earlier = pair.arrivals.filter(({ at }) => startedAt - at > LONG / 4);
    expect(earlier.length - before).toBeLessThanOrEqual(2);
    await Promise.all(many);
    expect(pair.arrivals).toHaveLength(11);
    expect(
      overtaking(
        pair.arrivals.filter(({ n }) => n < 100),
        LONG,
      ),
    ).toEqual([]);
    expect(most(LONG)).toBe(2);
  });

  test('is refused at once if so many of its user wait that it cannot start in time', async () => {
    await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '1000', RATE_MAX_WAIT_MS: '1500' });
    const sent = range(30).map((n) => pair.send(n));
    expect((await sent[29])?.status).toBe(429);
    expect(pair.arrivals.length).toBeLessThanOrEqual(2);
    const statuses = (await Promise.all(sent)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200).length).toBe(4);
  });
});

describe('a message that waits', () => {
  test('and whose client leaves never goes upstream, and gives its slot to the next (L6, S14)', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '1500', RATE_MAX_WAIT_MS: '2000' });
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
    // Behind another message it would have to wait for 3 s.
    expect((await pair.send(2)).status).toBe(200);
    expect(pair.started()).toEqual([0, 2]);
    expect(pair.relay.logs.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
  });

  test('and whose client leaves while it stands in line lets the next of its user come', async () => {
    await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '60000' });
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

  test('ends when its session does, and never goes upstream (G6)', async () => {
    await start({ RATE_LIMIT: '1', RATE_MAX_WAIT_MS: '60000' });
    const other = await pair.relay.signIn(OTHER_USER);
    await pair.send(0, { cookie: other });
    const waiting = pair.send(1);
    await until(() => pair.relay.open.count() === 1);
    await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie: pair.cookie } });
    const answer = await waiting;
    expect([answer.status, await codeOf(answer)]).toEqual([401, 'session_ended']);
    await sleep(1.5 * WINDOW);
    expect(pair.started()).toEqual([0]);
  });

  test('ends at the end of the grace of a relay that shuts down', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '5000', RATE_MAX_WAIT_MS: '60000' });
    await pair.send(0);
    const waiting = pair.send(1);
    await until(() => pair.relay.open.count() === 1);
    pair.relay.open.endAll(new Problem('draining', 'Shutting down.'));
    const answer = await waiting;
    expect([answer.status, await codeOf(answer)]).toEqual([503, 'draining']);
  });
});
