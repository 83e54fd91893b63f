import { afterEach, expect, test } from '@jest/globals';
import type { RequestHandler } from 'express';
import { spreadRequests } from '../../src/arrive/stages.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const COUNT = 300;
let stage: TestApp;
afterEach(() => stage.close());

/** Opens `COUNT` connections, waits until the server has accepted them, and sends a request on each at once. */
async function sendAtOnce() {
  const warm = rawMessage({ path: '/warm' });
  const clients = Array.from({ length: COUNT }, () => rawClient(stage.port, warm));
  await Promise.all(clients.map((client) => client.waitFor('warm')));
  for (const { socket } of clients) socket.write(rawMessage({ path: '/' }));
  return clients;
}
const isWarm: RequestHandler = (_req, res) => void res.end('warm');

test('many requests that come at once are all begun, a few in each round of the event loop', async () => {
  let round = 0;
  const rounds: number[] = [];
  const count = () => {
    round += 1;
    if (rounds.length < COUNT) setImmediate(count);
  };
  stage = await startTestApp((app) => {
    app.use('/warm', isWarm);
    app.use(spreadRequests(), (_req, res) => {
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

test('a waiting request whose client has left is not begun', async () => {
  let begun = 0;
  stage = await startTestApp((app) => {
    app.use('/warm', isWarm);
    app.use(spreadRequests(), (_req, res) => {
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
