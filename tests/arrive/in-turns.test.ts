import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import type { RequestHandler } from 'express';
import { inTurns } from '../../src/arrive/in-turns.ts';
import { type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import { startStage, type TestStage } from '../support/stage.ts';

const COUNT = 300;
let stage: TestStage;
afterEach(() => stage.close());

/** Opens `COUNT` connections, which the server has taken, and sends a request on each of them at once. */
async function sendAtOnce() {
  const warm = rawMessage({ path: '/warm' });
  const clients = Array.from({ length: COUNT }, () => rawClient(stage.port, warm));
  await Promise.all(clients.map((client) => client.waitFor('warm')));
  for (const { socket } of clients) socket.write(rawMessage({ path: '/' }));
  return clients;
}
const isWarm: RequestHandler = (_req, res) => void res.end('warm');

test('requests that come at once are begun a few at a time, all of them and in their order', async () => {
  let round = 0;
  const rounds: number[] = [];
  const count = () => {
    round += 1;
    if (rounds.length < COUNT) setImmediate(count);
  };
  stage = await startStage((app) => {
    app.use('/warm', isWarm);
    app.use(inTurns(), (_req, res) => {
      rounds.push(round);
      const until = performance.now() + 1;
      while (performance.now() < until);
      res.end('done');
    });
  });
  setImmediate(count);
  const clients = await sendAtOnce();
  await Promise.all(clients.map((client) => client.waitFor('done')));
  for (const { socket } of clients) socket.destroy();
  expect(rounds).toHaveLength(COUNT);
  const most = Math.max(...rounds.map((one) => rounds.filter((other) => other === one).length));
  expect(most).toBeLessThan(10);
});

test('a request whose client has left before its turn is not begun', async () => {
  let begun = 0;
  stage = await startStage((app) => {
    app.use('/warm', isWarm);
    app.use(inTurns(), (_req, res) => {
      begun += 1;
      if (begun === 1) for (const { socket } of clients.slice(-COUNT / 2)) socket.destroy();
      const end = performance.now() + 1;
      while (performance.now() < end);
      res.end('done');
    });
  });
  let clients: RawClient[] = [];
  clients = await sendAtOnce();
  await Promise.all(clients.slice(0, COUNT / 2).map((client) => client.waitFor('done')));
  await sleep(500);
  for (const { socket } of clients) socket.destroy();
  expect(begun).toBeLessThan(COUNT * 0.75);
});
