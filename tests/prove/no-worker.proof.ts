import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, jest, test } from '@jest/globals';
import { freePort } from '../support/free-port.ts';
import { connectionsTo, oneConnection } from '../support/one-connection.ts';
import { describeWithRedis } from '../support/redis.ts';
import { until } from '../support/until.ts';
import {
  type LogLine,
  startWorkersRelay,
  stopWorkersRelays,
  suspend,
  workerPids,
} from '../support/workers.ts';

jest.setTimeout(120_000);
afterAll(stopWorkersRelays);

const isListening = ({ msg }: LogLine) => msg === 'listening';
const hasEnded = ({ msg }: LogLine) => msg === 'worker ended';

/** Whether a worker that was replaced after a pause before is now replaced after the shortest one. */
function isSecondShortPause({ worker, replacedInMs }: LogLine, index: number, all: readonly LogLine[]) {
  const before = all.slice(0, index).findLast((line) => line.worker === worker);
  return Number(before?.replacedInMs) > 0 && replacedInMs === 1_000;
}

describeWithRedis('the connections of several workers', () => {
  test(
    'are reset or refused at once while no worker runs; one is started every second until it serves',
    endAgainAndAgain,
  );
});

async function endAgainAndAgain() {
  // With `PORT=0` a worker after the last one would get another port.
  const environment = { PORT: String(await freePort()) };
  const deployment = await startWorkersRelay({ workers: 2, environment });
  const { port, folder, logged, lines } = deployment;
  const swapUsers = (from: string, to: string) => renameSync(join(folder, from), join(folder, to));
  const pids = [...workerPids(deployment).values()];
  await suspend(...pids);
  const waiting = connectionsTo(port, 6);
  await sleep(100);
  swapUsers('users.json', 'users.away');
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  expect(await waiting).toEqual(Array(6).fill('cut'));
  expect(await connectionsTo(port, 6)).toEqual(Array(6).fill('refused'));
  const ended = await logged(6, hasEnded);
  expect(await oneConnection(port)).toBe('refused');
  expect(ended.slice(2, 6).map(({ exitCode }) => exitCode)).toEqual(Array(4).fill(78));
  // From the second on, the pauses would be longer if another worker ran all the time, or only started.
  await until(() => lines(hasEnded).some(isSecondShortPause));
  expect(lines(isListening)).toHaveLength(2);
  swapUsers('users.away', 'users.json');
  await logged(3, isListening);
  expect(await connectionsTo(port, 6)).toEqual(Array(6).fill('served'));
}
