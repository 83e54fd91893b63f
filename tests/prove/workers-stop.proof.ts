import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, jest } from '@jest/globals';
import { call } from '../support/call.ts';
import { dechunk } from '../support/raw-client.ts';
import { describeWithRedis } from '../support/redis.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { lives, startWorkersRelay, stopWorkersRelays, workerPids } from '../support/workers.ts';

jest.setTimeout(120_000);
afterAll(stopWorkersRelays);

/** Longer than signals count as one, in ms. */
const LATER_MS = 650;
const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

describeWithRedis('workers that are told to stop', () => {
  testSideBySide([
    ['are not ready at once, let streams finish, and the process exits 0', stopAfterDelay],
    [
      'count one Ctrl+C that reaches each of them once, however late the primary is, and skip the delay',
      ctrlC,
    ],
    ['end at once on a second signal, even a worker that hangs, and the process exits 1', secondSignal],
    [
      'end streams with an error event at the end of the grace; one that hangs is killed, and the process exits 1',
      hangAtStop,
    ],
    ['log that one dies meanwhile; the other finishes, and the process exits 1', dieAtStop],
  ]);
});

async function stopAfterDelay() {
  const environment = { ...GRACE, SHUTDOWN_DELAY_MS: '8000' };
  const deployment = await startWorkersRelay({ workers: 2, environment });
  const { relay, port, logged, lines, scrape } = deployment;
  const streams = await deployment.streamAtEach(2, await deployment.signIn());
  expect((await call(port, '/readyz')).status).toBe(200);
  relay.signal('SIGTERM');
  await logged(3, ({ msg }) => msg === 'shutting down');
  expect(new Set(await statusesUntilClosed(port))).toEqual(new Set([503]));
  // Now the relay does not listen any more, and the streams still run.
  expect(await scrape()).toContain('bot_relay_ready{check="accepting",worker="2"} 0');
  expect(lines(({ msg }) => msg === 'stopped')).toEqual([]);
  // One worker ends before the other, and is not replaced.
  streams[0]?.finish();
  await logged(1, ({ msg, worker }) => msg === 'stopped' && worker === 1);
  streams[1]?.finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  for (const { client } of streams) {
    expect(dechunk(client.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
  }
  expect(lines(({ msg }) => msg === 'stopped').map(({ worker }) => worker)).toEqual([1, 2, undefined]);
  expect(lines(({ msg }) => msg === 'worker ended')).toEqual([]);
  expect(relay.stderr()).toBe('');
}

/** What the relay answers to probes until it does not listen any more. */
async function statusesUntilClosed(port: number): Promise<number[]> {
  const statuses: number[] = [];
  for (;;) {
    const answer = await call(port, '/readyz').catch(() => undefined);
    if (!answer) return statuses;
    statuses.push(answer.status);
    await sleep(20);
  }
}

async function ctrlC() {
  // Longer than this test may take.
  const environment = { ...GRACE, SHUTDOWN_DELAY_MS: '600000' };
  const deployment = await startWorkersRelay({ workers: 2, environment });
  const { relay, lines, logged } = deployment;
  const streams = await deployment.streamAtEach(2, await deployment.signIn());
  for (const pid of workerPids(deployment).values()) process.kill(pid, 'SIGINT');
  await logged(2, ({ msg }) => msg === 'shutting down');
  await sleep(LATER_MS);
  relay.signal('SIGINT');
  await logged(3, ({ msg }) => msg === 'shutting down');
  // An ignored signal shows nothing, so the test gives a wrong exit some time to happen.
  await sleep(200);
  for (const { finish } of streams) finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  for (const { client } of streams) expect(dechunk(client.text())).toMatchObject({ complete: true });
  expect(lines(({ msg }) => msg === 'stopped at once')).toEqual([]);
}

async function secondSignal() {
  const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
  const { relay, logged, lines } = deployment;
  const streams = await deployment.streamAtEach(2, await deployment.signIn());
  const pids = [...workerPids(deployment).values()];
  relay.signal('SIGTERM');
  await logged(3, ({ msg }) => msg === 'shutting down');
  await sleep(LATER_MS);
  const stuck = pids[1] as number;
  process.kill(stuck, 'SIGSTOP');
  relay.signal('SIGTERM');
  // Half of the grace.
  const exited = await Promise.race([relay.exited, sleep(30_000, undefined, { ref: false })]);
  // A worker that stays suspended would never end.
  if (lives(stuck)) process.kill(stuck, 'SIGCONT');
  expect(exited).toEqual({ code: 1, signal: null });
  expect(lines(({ msg }) => msg === 'stopped at once')).toHaveLength(1);
  expect(pids.filter(lives)).toEqual([]);
  for (const { client } of streams) {
    await client.closed;
    expect(dechunk(client.text())).toMatchObject({ complete: false });
  }
}

async function hangAtStop() {
  const deployment = await startWorkersRelay({ workers: 2, environment: { SHUTDOWN_GRACE_MS: '100' } });
  const { relay, lines } = deployment;
  const streams = await deployment.streamAtEach(2, await deployment.signIn());
  const pids = workerPids(deployment);
  const stuck = pids.get(2) as number;
  process.kill(stuck, 'SIGSTOP');
  relay.signal('SIGTERM');
  const exited = await Promise.race([relay.exited, sleep(60_000, undefined, { ref: false })]);
  // A worker that stays suspended would never end.
  if (lives(stuck)) process.kill(stuck, 'SIGCONT');
  expect(exited).toEqual({ code: 1, signal: null });
  expect([...pids.values()].filter(lives)).toEqual([]);
  const [killed, ...others] = lines(({ msg }) => msg === 'worker did not stop, killed');
  expect(killed).toMatchObject({ level: 'error', worker: 2, pid: stuck });
  expect(others).toEqual([]);
  // Not before the grace and the time for final events are over.
  const [stopping] = lines(({ msg, worker }) => msg === 'shutting down' && worker === undefined);
  const tookMs = Date.parse(String(killed?.time)) - Date.parse(String(stopping?.time));
  expect(tookMs).toBeGreaterThan(6_100);
  // The other one has ended in order, with 0.
  expect(lines(({ msg, worker }) => msg === 'worker ended' && worker === 1)).toEqual([]);
  const [served, lost] = streams.map(({ client }) => dechunk(client.text()));
  expect(served).toMatchObject({
    body: expect.stringMatching(/^data: 1\n\nevent: error\ndata: \{.*"code":"draining".*\}\n\n$/),
    complete: true,
  });
  expect(lost).toMatchObject({ complete: false });
}

async function dieAtStop() {
  const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
  const { relay, logged, lines } = deployment;
  const streams = await deployment.streamAtEach(2, await deployment.signIn());
  const pid = workerPids(deployment).get(1) as number;
  relay.signal('SIGTERM');
  await logged(3, ({ msg }) => msg === 'shutting down');
  process.kill(pid, 'SIGKILL');
  const [line] = await logged(1, ({ msg }) => msg === 'worker ended');
  expect(line).toMatchObject({ level: 'error', worker: 1, pid, signal: 'SIGKILL' });
  expect(line).not.toHaveProperty('replacedInMs');
  streams[1]?.finish();
  expect(await relay.exited).toEqual({ code: 1, signal: null });
  expect(dechunk(streams[1]?.client.text() ?? '')).toMatchObject({ complete: true });
  expect(lines(({ msg }) => msg === 'stopped').map(({ worker }) => worker)).toEqual([2]);
}
