import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, jest } from '@jest/globals';
import { freePort } from '../support/free-port.ts';
import { inTurn } from '../support/in-turn.ts';
import { rawClient } from '../support/raw-client.ts';
import { describeWithRedis } from '../support/redis.ts';
import { testSideBySide } from '../support/side-by-side.ts';
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

const REQUEST = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\nConnection: close\r\n\r\n';
/** Far longer than an answer takes on a busy machine, in ms. */
const HANGS_MS = 20_000;
/** How many connections are open at any time. */
const CONNECTIONS = 4;

/** How a connection ended; `cut` is a reset, or an end without an answer. */
async function oneConnection(port: number): Promise<'served' | 'cut' | 'refused' | 'hangs'> {
  const client = rawClient(port, REQUEST);
  const closed = await Promise.race([client.closed, sleep(HANGS_MS, undefined, { ref: false })]);
  client.socket.destroy();
  if (!closed) return 'hangs';
  if (closed.error === 'ECONNREFUSED') return 'refused';
  return client.text().startsWith('HTTP/1.1 200 ') ? 'served' : 'cut';
}

const connectionsTo = (port: number, count: number) =>
  Promise.all(Array.from({ length: count }, () => oneConnection(port)));

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
const hasEnded = ({ msg }: LogLine) => msg === 'worker ended';

/** Whether a worker that was replaced after a pause before is now replaced after the shortest one. */
function isSecondShortPause({ worker, replacedInMs }: LogLine, index: number, all: readonly LogLine[]) {
  const before = all.slice(0, index).findLast((line) => line.worker === worker);
  return Number(before?.replacedInMs) > 0 && replacedInMs === 1_000;
}

describeWithRedis('the connections of several workers', () => {
  // The cases that follow one another share this relay; the last of them stops it.
  let deployment: WorkersRelay;

  testSideBySide([
    ...inTurn([
      [
        'do not hang when a worker is killed, whatever it was doing',
        async () => {
          deployment = await startWorkersRelay({ workers: 2, environment: { SHUTDOWN_GRACE_MS: '60000' } });
          await killSome(deployment);
        },
      ],
      ['go to another worker when one hangs and is killed', () => killStuck(deployment)],
      ['do not hang while all workers drain', () => drainAll(deployment)],
    ]),
    [
      'are reset or refused at once while no worker runs; one is started every second until it serves',
      endAgainAndAgain,
    ],
  ]);
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
  kill(...pids);
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
