import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, jest, test } from '@jest/globals';
import { connectionsTo, oneConnection } from '../support/one-connection.ts';
import { describeWithRedis } from '../support/redis.ts';
import { until } from '../support/until.ts';
import {
  type LogLine,
  startWorkersRelay,
  stopWorkersRelays,
  suspend,
  type WorkersRelay,
  workerPids,
} from '../support/workers.ts';

jest.setTimeout(120_000);
afterAll(stopWorkersRelays);

/** How many connections are open at any time. */
const CONNECTIONS = 4;

/**
 * Connects again and again until `stop`, with pauses that leave the machine some time (for 60 s at most); `stop`
 * resolves with the number of each outcome.
 */
function keepConnecting(port: number) {
  const outcomes = { served: 0, cut: 0, refused: 0, hangs: 0 };
  const until = performance.now() + 60_000;
  let isOver = false;
  const lines = Array.from({ length: CONNECTIONS }, async () => {
    while (!isOver && performance.now() < until) {
      outcomes[await oneConnection(port)] += 1;
      await sleep(20 * Math.random());
    }
  });
  return {
    async stop() {
      isOver = true;
      await Promise.all(lines);
      return outcomes;
    },
  };
}

const kill = (...pids: readonly number[]) => {
  for (const pid of pids) process.kill(pid, 'SIGKILL');
};
const isListening = ({ msg }: LogLine) => msg === 'listening';

describeWithRedis('the connections of several workers', () => {
  // The cases that follow one another share this relay; the last of them stops it.
  let deployment: WorkersRelay;

  test('do not hang when a worker is killed, whatever it was doing', async () => {
    deployment = await startWorkersRelay({ workers: 2, environment: { SHUTDOWN_GRACE_MS: '60000' } });
    await killSome(deployment);
  });

  test('go to another worker when one hangs and is killed', () => killStuck(deployment));

  // `npm run prove` has connections while no worker runs.
  test('do not hang while all workers drain', () => drainAll(deployment));
});

async function killSome({ port, relay, logged }: WorkersRelay) {
  const traffic = keepConnecting(port);
  await sleep(100 * Math.random());
  // The other worker serves all the time.
  kill(workerPids({ relay }).get(1) as number);
  await logged(3, isListening);
  const { served, cut, ...others } = await traffic.stop();
  expect(others).toEqual({ refused: 0, hangs: 0 });
  expect(served).toBeGreaterThan(0);
  // Only connections that the killed worker had accepted.
  expect(cut).toBeLessThanOrEqual(CONNECTIONS);
}

async function killStuck({ port, relay, logged }: WorkersRelay) {
  const [stuck, ...others] = [...workerPids({ relay }).values()] as [number, ...number[]];
  await suspend(stuck, ...others);
  const outcomes = connectionsTo(port, 6);
  await sleep(100);
  kill(stuck);
  for (const pid of others) process.kill(pid, 'SIGCONT');
  expect(await outcomes).toEqual(Array(6).fill('served'));
  await logged(4, isListening);
}

async function drainAll(deployment: WorkersRelay) {
  const { relay, port, logged } = deployment;
  const [stream] = await deployment.streamAtEach(1, await deployment.signIn());
  const traffic = keepConnecting(port);
  await sleep(200);
  relay.signal('SIGTERM');
  await logged(3, ({ msg }) => msg === 'shutting down');
  await until(async () => (await oneConnection(port)) === 'refused');
  expect(await traffic.stop()).toMatchObject({ hangs: 0 });
  stream?.finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
}
