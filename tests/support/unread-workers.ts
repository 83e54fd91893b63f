import { expect } from '@jest/globals';
import { call } from './call.ts';
import type { Kind } from './readable-output.ts';
import { startRedis } from './redis-server.ts';
import { sleep } from './sleep.ts';
import {
  answering,
  BOTH_WORKERS,
  PATIENCE_MS,
  REQUESTS,
  request,
  SOON_MS,
  startUnread,
  timed,
} from './unread-log.ts';
import { stopTwice } from './unread-relay.ts';
import { whileAwake } from './while-awake.ts';
import { lives, workerPids } from './workers.ts';

/** The cases of two workers, by their titles. */
export const unreadWorkers = (kind: Kind) => ({
  'go on serving, also while one of them is replaced, and exit with 0 soon after SIGTERM': () =>
    replaceOne(kind),
  'exit with 1 soon after a second signal': async () => stopTwice(kind, await workers()),
  'end soon after an uncaught error of their primary': () => crashPrimary(kind),
  'lose nothing if the log is read again': whileAwake(() => readAgain(kind)),
});

/** The relays share nothing in their Redis; without one they would start only after a while. */
const workers = async () => ({ WORKERS: '2', REDIS_URL: (await startRedis()).url });

async function replaceOne(kind: Kind): Promise<void> {
  const relay = await startUnread(kind, await workers());
  expect(await request(relay)).toBe(REQUESTS);
  const { body } = await call(relay.metricsPort, '/metrics');
  for (const worker of ['primary', '1', '2'])
    expect(body).toContain(`\nbot_relay_log_lines_dropped_total{worker="${worker}"} 0\n`);
  const before = workerPids({ relay });
  process.kill(before.get(1) as number, 'SIGKILL');
  const deadline = performance.now() + PATIENCE_MS;
  while ((workerPids({ relay }).get(1) ?? before.get(1)) === before.get(1)) {
    expect(performance.now()).toBeLessThan(deadline);
    await sleep(50);
  }
  await answering(relay.metricsPort, '/metrics', BOTH_WORKERS);
  expect(await request(relay)).toBe(REQUESTS);
  const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
  expect(code).toBe(0);
  expect(ms).toBeLessThan(SOON_MS);
}

/** The exit of the primary makes a socket block again (Node.js, `ResetStdio`). */
async function crashPrimary(kind: Kind): Promise<void> {
  const relay = await startUnread(kind, await workers());
  expect(await request(relay)).toBe(REQUESTS);
  const pids = [...workerPids({ relay }).values()];
  expect(pids).toHaveLength(2);
  relay.signal('SIGUSR2');
  expect(await relay.exited).toBe(1);
  const deadline = performance.now() + SOON_MS;
  while (pids.some(lives) && performance.now() < deadline) await sleep(50);
  const left = pids.filter(lives);
  for (const pid of left) process.kill(pid, 'SIGKILL');
  expect(left).toEqual([]);
}

async function readAgain(kind: Kind): Promise<void> {
  const relay = await startUnread(kind, await workers());
  expect(await request(relay)).toBe(REQUESTS);
  relay.output.read();
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
  await relay.output.ended;
  const messages = relay.messages();
  expect(messages.filter((msg) => msg === 'request')).toHaveLength(REQUESTS);
  expect(messages.filter((msg) => msg === 'stopped')).toHaveLength(3);
}
