import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, jest, test } from '@jest/globals';
import { commandDeadlines } from '../../src/storage/command-deadlines.ts';
import { TIMEOUT } from '../../src/storage/redis-errors.ts';
import { sleep } from '../harness/clock/sleep.ts';

const MS = 500;
const never = () => new Promise<never>(() => {});

function keepBusy(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/** Both ends of a connection. */
async function connection(): Promise<[Socket, Socket]> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const accepted = once(server, 'connection');
  const client = connect(port, '127.0.0.1');
  const [socket] = await accepted;
  server.close();
  return [client, socket as Socket];
}

test('a command has its whole time, also if the timer runs already', async () => {
  const within = commandDeadlines(MS);
  const first = within(never).catch((error) => error);
  await sleep(30);
  const startedAt = performance.now();
  await expect(within(never)).rejects.toBe(TIMEOUT);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(MS);
  expect(await first).toBe(TIMEOUT);
});

test('an answer counts that has arrived when the time is over, but was not read yet', async () => {
  const [client, server] = await connection();
  const answer = commandDeadlines(MS)(() => once(client, 'data'));
  await sleep(MS * 0.65);
  // Behind this, timers come before what has arrived.
  await new Promise(setImmediate);
  server.write('PONG');
  keepBusy(MS / 2);
  expect(String(await answer)).toBe('PONG');
  client.destroy();
  server.destroy();
});

test('one timer serves all commands, and is gone a moment after the last answer', async () => {
  // Until the timers of other tests are gone.
  await sleep(MS / 4);
  const begins = jest.spyOn(globalThis, 'setInterval');
  const ends = jest.spyOn(globalThis, 'clearInterval');
  const within = commandDeadlines(MS);
  for (const n of [1, 2]) {
    await Promise.all(Array.from({ length: 5 }, () => within(() => Promise.resolve('PONG'))));
    expect(begins).toHaveBeenCalledTimes(n);
    expect(ends).toHaveBeenCalledTimes(n - 1);
    await sleep(MS / 4);
    expect(ends).toHaveBeenCalledTimes(n);
    expect(ends.mock.lastCall?.[0]).toBe(begins.mock.results.at(-1)?.value);
  }
  jest.restoreAllMocks();
});

test.each([100, 150])(
  'the time is hardly longer if each turn of the event loop takes %i ms',
  async (turnMs) => {
    let isOver = false;
    const work = commandDeadlines(MS)(never).catch(() => {
      isOver = true;
    });
    let turns = 0;
    for (; !isOver; turns++) {
      keepBusy(turnMs);
      await new Promise(setImmediate);
    }
    await work;
    expect(turns).toBeLessThanOrEqual(MS / turnMs + 2);
  },
);
