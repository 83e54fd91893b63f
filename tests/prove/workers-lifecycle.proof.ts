import { readlinkSync, renameSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, expect, jest } from '@jest/globals';
import { call } from '../support/call.ts';
import { runCommand, stopCommands } from '../support/commands.ts';
import { freePort } from '../support/free-port.ts';
import { inTurn } from '../support/in-turn.ts';
import { freshFolder, inFrontOf, startProcess } from '../support/process.ts';
import { dechunk } from '../support/raw-client.ts';
import { describeWithRedis, startRedis } from '../support/redis.ts';
import { type RedisProxy, startRedisProxy } from '../support/redis-proxy.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';
import { whileAwake } from '../support/while-awake.ts';
import {
  type LogLine,
  linesOf,
  startWorkersRelay,
  stopWorkersRelays,
  type WorkersRelay,
  workerPids,
} from '../support/workers.ts';

jest.setTimeout(120_000);

const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

describeWithRedis('workers', () => {
  let wire: RedisProxy | undefined;
  // The cases that follow one another share this relay; the last of them stops it.
  let deployment: WorkersRelay;
  const stopShared = async () => {
    deployment?.relay.signal('SIGKILL');
    wire?.close();
  };
  afterAll(async () => {
    await stopWorkersRelays();
    await stopCommands();
    wire?.close();
  });

  async function startBehindSlowRedis() {
    wire = await startRedisProxy((await startRedis()).url);
    wire.slowDown(150);
    deployment = await startWorkersRelay({
      workers: 2,
      environment: { ...GRACE, REDIS_URL: wire.url },
    });
    wire.slowDown(0);
    const order = deployment.lines(({ msg }) => msg === 'redis ready' || msg === 'listening');
    for (const number of [1, 2]) {
      const own = order.filter(({ worker }) => worker === number).map(({ msg }) => msg);
      // A connection that is lost meanwhile is ready again later.
      expect([...new Set(own)]).toEqual(['redis ready', 'listening']);
    }
  }

  testSideBySide([
    ...inTurn([
      [
        'that start take no connection before Redis answers, or they have waited for it for a while',
        whileAwake(startBehindSlowRedis, stopShared),
      ],
      [
        'that die are replaced by ones with the same number, and the stream of another worker goes on',
        () => replaceKilled(deployment),
      ],
      ['that get a signal of their own drain first, and are replaced', () => replaceDrained(deployment)],
      [
        'that die again and again are replaced after longer and longer pauses, while the other serves',
        () => dieAgainAndAgain(deployment),
      ],
    ]),
    ['listen after a while if Redis does not answer', listenWithoutRedis],
    ...inTurn([
      ['that have no free PORT end the process with one line', () => portInUse('PORT')],
      ['that have no free METRICS_PORT end the process with one line', () => portInUse('METRICS_PORT')],
    ]),
    ...inTurn([
      ['without users or a variable end the process before any worker starts', missingSettings],
      ['that cannot start end the process with the exit code of the first one', firstWorkerExits],
      ['that the system kills before they listen end the process with 1 and a line', firstWorkerKilled],
      [
        'that crash print why to standard error of the primary, and share no descriptor 0 to 2 with it',
        crash,
      ],
      ['without a primary print the usage', noPrimary],
    ]),
  ]);
});

async function replaceKilled(deployment: WorkersRelay) {
  const { port, logged } = deployment;
  const cookie = await deployment.signIn();
  const [lost, kept] = await deployment.streamAtEach(2, cookie);
  const pid = workerPids(deployment).get(1) as number;
  process.kill(pid, 'SIGKILL');
  await lost?.client.closed;
  expect(dechunk(lost?.client.text() ?? '')).toMatchObject({ body: 'data: 1\n\n', complete: false });
  const [line] = await logged(1, ({ msg }) => msg === 'worker ended');
  expect(line).toMatchObject({ level: 'error', worker: 1, pid, exitCode: null, signal: 'SIGKILL' });
  await logged(2, ({ msg, worker }) => msg === 'listening' && worker === 1);
  expect(workerPids(deployment).get(1)).not.toBe(pid);
  expect((await call(port, '/auth/session', { headers: { Cookie: cookie } })).status).toBe(200);
  kept?.finish();
  await kept?.client.closed;
  expect(dechunk(kept?.client.text() ?? '')).toMatchObject({
    body: 'data: 1\n\ndata: 2\n\n',
    complete: true,
  });
}

async function replaceDrained(deployment: WorkersRelay) {
  const { lines, logged } = deployment;
  const listened = lines(({ msg, worker }) => msg === 'listening' && worker === 1).length;
  const [stream] = await deployment.streamAtEach(2, await deployment.signIn());
  process.kill(workerPids(deployment).get(1) as number, 'SIGTERM');
  await logged(1, ({ msg, worker }) => msg === 'shutting down' && worker === 1);
  stream?.finish();
  await logged(1, ({ msg, level }) => msg === 'worker ended' && level === 'warn');
  await stream?.client.closed;
  expect(dechunk(stream?.client.text() ?? '')).toMatchObject({ complete: true });
  await logged(listened + 1, ({ msg, worker }) => msg === 'listening' && worker === 1);
}

async function dieAgainAndAgain(deployment: WorkersRelay) {
  const { relay, port, folder, logged, lines } = deployment;
  const [stream] = await deployment.streamAtEach(2, await deployment.signIn());
  const swapUsers = (from: string, to: string) => renameSync(join(folder, from), join(folder, to));
  swapUsers('users.json', 'users.away');
  process.kill(workerPids(deployment).get(2) as number, 'SIGKILL');
  const endOfSecond = ({ msg, worker }: LogLine) => msg === 'worker ended' && worker === 2;
  const [, second, third] = await logged(3, endOfSecond);
  expect(second).toMatchObject({ exitCode: 78 });
  expect(third?.replacedInMs).toBe(2 * Number(second?.replacedInMs));
  expect((await call(port, '/readyz')).status).toBe(200);
  expect(Date.parse(String(third?.time)) - Date.parse(String(second?.time))).toBeGreaterThanOrEqual(
    Number(second?.replacedInMs),
  );
  // After a stop no worker is replaced, and the stop does not wait for the pause.
  const stopping = lines(({ msg }) => msg === 'shutting down').length;
  relay.signal('SIGTERM');
  await logged(stopping + 2, ({ msg }) => msg === 'shutting down');
  await sleep(Number(third?.replacedInMs) + 200);
  expect([...workerPids(deployment).keys()]).toEqual([1]);
  stream?.finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(lines(endOfSecond)).toHaveLength(3);
}

async function listenWithoutRedis() {
  const environment = { REDIS_URL: `redis://127.0.0.1:${await freePort()}` };
  const relay = startProcess({
    folder: freshFolder({ 'users.json': JSON.stringify({ users: [] }) }),
    environment: { ...inFrontOf('http://127.0.0.1:9'), WORKERS: '2', ...environment },
  });
  expect((await call(await relay.listening(), '/readyz')).status).toBe(503);
}

const settings = (more: Record<string, string>) => ({
  ...inFrontOf('http://127.0.0.1:9'),
  // Nothing listens there, which does not prevent the start.
  REDIS_URL: 'redis://127.0.0.1:1',
  WORKERS: '2',
  ...more,
});

async function portInUse(name: string) {
  const other = createServer();
  const taken = await freePort();
  await new Promise<void>((resolve) => other.listen(taken, '127.0.0.1', resolve));
  const folder = freshFolder({ 'users.json': '{"users":[]}' });
  const relay = startProcess({ folder, environment: settings({ [name]: String(taken) }) });
  expect(await relay.exited).toEqual({ code: 1, signal: null });
  expect(relay.stderr()).toMatch(
    new RegExp(
      `^The relay cannot listen on HOST and ${name}: [^\\n]*EADDRINUSE[^\\n]*; set ${name} to another\\n$`,
    ),
  );
  expect(relay.stdout()).not.toMatch(/"msg":"(listening|worker ended)"/);
  await new Promise((resolve) => other.close(resolve));
}

async function missingSettings() {
  const noUsers = await runCommand({ environment: settings({}) });
  expect(noUsers).toEqual({ code: 78, stdout: '', stderr: expect.stringMatching(/^USERS_FILE: [^\n]*\n$/) });
  expect(await runCommand({ environment: settings({ REDIS_URL: '' }) })).toEqual({
    code: 78,
    stdout: '',
    stderr: expect.stringContaining('\n  - REDIS_URL must be set with WORKERS other than 1\n'),
  });
}

async function firstWorkerExits() {
  const folder = freshFolder({ 'users.json': '{"users":[]}' });
  // The primary finds the file before its worker removes it.
  const nodeArgs = [
    '--import',
    `data:text/javascript,${encodeURIComponent(`
      import { rmSync } from 'node:fs';
      if (process.argv[2] === 'worker') rmSync('users.json', { force: true });
    `)}`,
  ];
  const relay = startProcess({ folder, environment: settings({}), nodeArgs });
  expect(await relay.exited).toEqual({ code: 78, signal: null });
  expect(relay.stderr()).toMatch(/^USERS_FILE: [^\n]*\n$/);
  expect(linesOf(relay).filter(({ msg }) => msg === 'worker ended')).toEqual([]);
}

async function firstWorkerKilled() {
  const folder = freshFolder({ 'users.json': '{"users":[]}' });
  const code = encodeURIComponent("if (process.argv[2] === 'worker') process.kill(process.pid, 'SIGKILL')");
  const nodeArgs = ['--import', `data:text/javascript,${code}`];
  const relay = startProcess({ folder, environment: settings({}), nodeArgs });
  expect(await relay.exited).toEqual({ code: 1, signal: null });
  expect(linesOf(relay).filter(({ level }) => level === 'fatal')).toEqual([
    expect.objectContaining({ worker: 1, signal: 'SIGKILL', msg: 'worker never listened' }),
  ]);
}

/** A worker that had the log of its primary as standard output would make it block for all by its start. */
async function crash() {
  const code = encodeURIComponent("process.on('SIGUSR2', () => process.abort())");
  const relays = await startWorkersRelay({
    workers: 2,
    nodeArgs: ['--import', `data:text/javascript,${code}`],
  });
  const { relay } = relays;
  const pid = workerPids(relays).get(1) as number;
  const standard = [0, 1, 2].map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  const [, ...ofPrimary] = [0, 1, 2].map((fd) => readlinkSync(`/proc/${relay.pid}/fd/${fd}`));
  expect(standard.filter((name) => ofPrimary.includes(name))).toEqual([]);
  process.kill(pid, 'SIGUSR2');
  await until(() => relay.stderr().includes('stack trace'));
  relay.signal('SIGKILL');
}

async function noPrimary() {
  const relay = startProcess({ args: ['worker', '1'], environment: settings({}) });
  expect(await relay.exited).toEqual({ code: 64, signal: null });
  expect(relay.stderr()).toMatch(/^Usage: /);
}
