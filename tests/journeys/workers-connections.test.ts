import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { freePort } from '../support/free-port.ts';
import { rawClient } from '../support/raw-client.ts';
import { describeWithRedis } from '../support/redis.ts';
import {
  startWorkersRelay,
  stopWorkersRelays,
  suspend,
  type WorkersRelay,
  workerPids,
} from '../support/workers.ts';

jest.setTimeout(60_000);
afterEach(stopWorkersRelays);

const REQUEST = 'GET /healthz HTTP/1.1\r\nHost: app.example.com\r\nConnection: close\r\n\r\n';
/** Far above what an answer takes on a busy machine. */
const HANGS_MS = 10_000;
/** How many are open at any time. */
const CONNECTIONS = 8;

/** How a connection of its own went; `cut` is a reset, or an end without an answer. */
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

/** Connects again and again until `stop` (30 s at most), which resolves with how often each outcome came. */
function keepConnecting(port: number) {
  const outcomes = { served: 0, cut: 0, refused: 0, hangs: 0 };
  const until = performance.now() + 30_000;
  let isOver = false;
  const lines = Array.from({ length: CONNECTIONS }, async () => {
    while (!isOver && performance.now() < until) outcomes[await oneConnection(port)] += 1;
  });
  return {
    async stop() {
      isOver = true;
      await Promise.all(lines);
      return outcomes;
    },
  };
}

/** For what comes after the last worker has gone: with `PORT=0` the next one would have another port. */
const fixedPort = async () => ({ PORT: String(await freePort()) });

const kill = (...pids: readonly number[]) => {
  for (const pid of pids) process.kill(pid, 'SIGKILL');
};
const listening = ({ logged }: WorkersRelay, times: number) =>
  logged(times, ({ msg }) => msg === 'listening');

describeWithRedis('the connections of several workers', () => {
  test('hang for none that is killed, whatever it was doing', async () => {
    const deployment = await startWorkersRelay({ workers: 3 });
    const traffic = keepConnecting(deployment.port);
    const kills = 4;
    for (let killed = 0; killed < kills; killed += 1) {
      await sleep(100 * Math.random());
      // The third one serves all the time.
      kill(workerPids(deployment).get((killed % 2) + 1) as number);
      if (killed % 2 === 1) await listening(deployment, 3 + killed + 1);
    }
    const { served, cut, ...others } = await traffic.stop();
    expect(others).toEqual({ refused: 0, hangs: 0 });
    expect(served).toBeGreaterThan(0);
    // None but those that it had accepted.
    expect(cut).toBeLessThanOrEqual(CONNECTIONS * kills);
  });

  test('go to another where one is stuck and is killed', async () => {
    const deployment = await startWorkersRelay({ workers: 2 });
    const [stuck, other] = [...workerPids(deployment).values()] as [number, number];
    await suspend(stuck, other);
    const outcomes = connectionsTo(deployment.port, 6);
    await sleep(100);
    kill(stuck);
    process.kill(other, 'SIGCONT');
    expect(await outcomes).toEqual(Array(6).fill('served'));
  });

  test('are reset and refused at once while there is none, and served by the next', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: await fixedPort() });
    const { port, lines } = deployment;
    const pids = [...workerPids(deployment).values()];
    await suspend(...pids);
    const waiting = connectionsTo(port, 6);
    await sleep(100);
    kill(...pids);
    expect(await waiting).toEqual(Array(6).fill('cut'));
    expect(await connectionsTo(port, 6)).toEqual(Array(6).fill('refused'));
    // So none of it has waited for a new one.
    expect(lines(({ msg }) => msg === 'listening')).toHaveLength(2);
    await listening(deployment, 3);
    expect(await connectionsTo(port, 6)).toEqual(Array(6).fill('served'));
  });

  test('hang for none while all drain', async () => {
    const deployment = await startWorkersRelay({
      workers: 2,
      environment: { SHUTDOWN_GRACE_MS: '60000' },
    });
    const { relay, port, logged } = deployment;
    const [stream] = await deployment.streamAtEach(1, await deployment.signIn());
    const traffic = keepConnecting(port);
    await sleep(200);
    relay.signal('SIGTERM');
    await logged(3, ({ msg }) => msg === 'shutting down');
    while ((await oneConnection(port)) !== 'refused') await sleep(5);
    expect(await traffic.stop()).toMatchObject({ hangs: 0 });
    stream?.finish();
    expect(await relay.exited).toEqual({ code: 0, signal: null });
  });
});

describeWithRedis('workers that all end again and again', () => {
  test('are started every second until one serves', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: await fixedPort() });
    const { port, folder, logged, lines } = deployment;
    const swapUsers = (from: string, to: string) => renameSync(join(folder, from), join(folder, to));
    swapUsers('users.json', 'users.away');
    kill(...workerPids(deployment).values());
    const ended = await logged(8, ({ msg }) => msg === 'worker ended');
    expect(await oneConnection(port)).toBe('refused');
    expect(ended.slice(2).map(({ exitCode }) => exitCode)).toEqual(Array(6).fill(78));
    const short = ended.filter(({ replacedInMs }) => replacedInMs === 1_000);
    expect(short.length).toBeGreaterThanOrEqual(4);
    expect(lines(({ msg }) => msg === 'listening')).toHaveLength(2);
    swapUsers('users.away', 'users.json');
    await listening(deployment, 3);
    expect(await oneConnection(port)).toBe('served');
  });
});
