import { afterEach, expect, test } from '@jest/globals';
import { inTurns } from '../../src/arrive/in-turns.ts';
import { until } from '../support/pair.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { startStage, type TestStage } from '../support/stage.ts';

const COUNT = 300;
let stage: TestStage;
afterEach(() => stage.close());

/** Opens `COUNT` connections, and sends a request on each of them at once. */
async function sendAtOnce() {
  const clients = Array.from({ length: COUNT }, () => rawClient(stage.port, ''));
  await Promise.all(clients.map(({ socket }) => new Promise((resolve) => socket.once('connect', resolve))));
  for (const { socket } of clients) socket.write(rawMessage({ path: '/' }));
  return clients;
}

test('requests that come at once are begun a few at a time, all of them and in their order', async () => {
  let round = 0;
  const rounds: number[] = [];
  const count = () => {
    round += 1;
    if (rounds.length < COUNT) setImmediate(count);
  };
  stage = await startStage((app) => {
    app.use(inTurns(), (_req, res) => {
      rounds.push(round);
      const until = performance.now() + 1;
      while (performance.now() < until);
      res.end();
    });
  });
  setImmediate(count);
  const clients = await sendAtOnce();
  await Promise.all(clients.map((client) => client.waitFor('HTTP/1.1 200')));
  for (const { socket } of clients) socket.destroy();
  expect(rounds).toHaveLength(COUNT);
  const most = Math.max(...rounds.map((one) => rounds.filter((other) => other === one).length));
  expect(most).toBeLessThan(10);
});

test('a request whose client has left before its turn is not begun', async () => {
  let begun = 0;
  stage = await startStage((app) => {
    app.use(inTurns(), (_req, res) => {
      begun += 1;
      for (const { socket } of clients.slice(-COUNT / 2)) socket.destroy();
      const end = performance.now() + 5;
      while (performance.now() < end);
      res.end();
    });
  });
  let clients: Awaited<ReturnType<typeof sendAtOnce>> = [];
  clients = await sendAtOnce();
  await until(() => begun >= COUNT / 2 - 1);
  await Promise.all(clients.slice(0, COUNT / 2).map((client) => client.waitFor('HTTP/1.1 200')));
  for (const { socket } of clients) socket.destroy();
  expect(begun).toBeLessThan(COUNT);
});
