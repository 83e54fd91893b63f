import { afterAll, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import {
  codeOf,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

const pairs: WithNumberedMessages[] = [];
afterAll(() => Promise.all(pairs.map((pair) => pair.close())));

/** Also counts the slots that were reserved and given back. */
async function start(environment: Record<string, string>) {
  const pair = await startWithNumberedMessages({ RATE_MAX_WAIT_MS: '60000', ...environment });
  pairs.push(pair);
  const { budgets } = pair.relay;
  const [reserve, cancel] = [budgets.reserve, budgets.cancel];
  let [reserved, givenBack] = [0, 0];
  budgets.reserve = async (...given) => {
    const answer = await reserve(...given);
    if (answer.state === 'granted') reserved += 1;
    return answer;
  };
  budgets.cancel = async (...given) => {
    await cancel(...given);
    givenBack += 1;
  };
  return { ...pair, reserved: () => reserved, givenBack: () => givenBack };
}

/** So many messages wait for their slots. */
const waiting = (pair: WithNumberedMessages, count: number) => until(() => pair.relay.open.count() === count);

describe('a message beyond the limit', () => {
  test.concurrent('waits for its slot, and all are sent', async () => {
    const pair = await start({ RATE_LIMIT: '3', RATE_WINDOW_MS: '100' });
    const other = await pair.relay.signIn(OTHER_USER);
    const sent = range(10).map((n) => pair.send(n, n % 2 ? { cookie: other } : {}));
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual(range(10).map(() => 200));
    expect(pair.started().sort((a, b) => a - b)).toEqual(range(10));
  });

  test.concurrent('is refused if its slot comes too late, with a correct Retry-After', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '60000' });
    await pair.send(0);
    const refused = await pair.send(1);
    expect([refused.status, await codeOf(refused)]).toEqual([429, 'rate_limited']);
    const seconds = Number(refused.headers.get('retry-after'));
    // No test takes so long that less than this is left.
    expect(seconds > 60 && seconds <= 601).toBe(true);
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('is refused if RATE_MAX_WAIT_MS is 0', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' });
    const answers = await Promise.all([pair.send(0), pair.send(1)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 429]);
  });

  test.concurrent('is refused if too many messages of its user wait', async () => {
    // A user has two future slots, and those of the third window come too late.
    const pair = await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '90000' });
    await Promise.all([pair.send(0), pair.send(1)]);
    const leaving = new AbortController();
    const first = range(2).map((n) => pair.send(2 + n, { signal: leaving.signal }).catch(() => 'left'));
    await waiting(pair, 2);
    await until(() => pair.reserved() === 4);
    expect((await pair.send(4)).status).toBe(429);
    expect(pair.started().sort()).toEqual([0, 1]);
    leaving.abort();
    await Promise.all(first);
  });
});

describe('a message that waits', () => {
  test.concurrent('is never sent if its client leaves, and its slot goes to the next', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '400000', RATE_MAX_WAIT_MS: '600000' });
    await pair.send(0);
    const leaving = new AbortController();
    const left = pair.send(1, { signal: leaving.signal }).catch(() => 'left');
    await until(() => pair.reserved() === 2);
    leaving.abort();
    expect(await left).toBe('left');
    const line = await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    expect(line).toMatchObject({ level: 'info' });
    await until(() => pair.givenBack() === 1);
    // Behind another message it would have to wait for two windows, and be refused.
    const next = new AbortController();
    const last = pair.send(2, { signal: next.signal }).catch(() => 'left');
    await until(() => pair.reserved() === 3);
    expect(pair.relay.open.count()).toBe(1);
    next.abort();
    expect(await last).toBe('left');
    expect(pair.started()).toEqual([0]);
    expect(pair.relay.logs.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
  });

  test.concurrent('ends with its session, and is never sent', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '400000', RATE_MAX_WAIT_MS: '600000' });
    const other = await pair.relay.signIn(OTHER_USER);
    await pair.send(0, { cookie: other });
    const ended = pair.send(1);
    await until(() => pair.reserved() === 2);
    await fetch(`${pair.relay.url}/auth/logout`, { method: 'POST', headers: { Cookie: pair.cookie } });
    const answer = await ended;
    expect([answer.status, await codeOf(answer)]).toEqual([401, 'session_ended']);
    await until(() => pair.givenBack() === 1);
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('ends at the end of the grace period of a shutdown', async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '400000', RATE_MAX_WAIT_MS: '600000' });
    await pair.send(0);
    const ended = pair.send(1);
    await waiting(pair, 1);
    pair.relay.open.endAll(new Problem('draining', 'Shutting down.'));
    const answer = await ended;
    expect([answer.status, await codeOf(answer)]).toEqual([503, 'draining']);
  });
});
