import { renameSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { freePort } from '../support/free-port.ts';
import { freshFolder, inFrontOf, startProcess } from '../support/process.ts';
import { dechunk } from '../support/raw-client.ts';
import { describeWithRedis, startRedis } from '../support/redis.ts';
import { redisWire } from '../support/redis-wire.ts';
import { argsOf, linesOf, startWorkersRelay, stopWorkersRelays, workerPids } from '../support/workers.ts';

jest.setTimeout(60_000);
afterEach(stopWorkersRelays);

/** Longer than what counts as the same press of a key. */
const LATER_MS = 650;
const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

/** One that has ended has no command line, also where nobody has asked for its exit code yet. */
const lives = (pid: number) => {
  try {
    return argsOf(pid).length > 0;
  } catch {
    return false;
  }
};

describeWithRedis('workers that start', () => {
  test('take no connection before they have their Redis, or have waited for it for a while', async () => {
    const redis = await startRedis();
    const wire = await redisWire(redis.url);
    wire.slowDown(150);
    try {
      const deployment = await startWorkersRelay({ workers: 2, environment: { REDIS_URL: wire.url } });
      const order = await deployment.logged(4, ({ msg }) => msg === 'redis ready' || msg === 'listening');
      for (const number of [1, 2]) {
        const own = order.filter(({ worker }) => worker === number);
        expect(own.map(({ msg }) => msg)).toEqual(['redis ready', 'listening']);
      }
    } finally {
      wire.close();
    }
  });

  test('listen all the same where Redis stays away', async () => {
    const environment = { REDIS_URL: `redis://127.0.0.1:${await freePort()}` };
    const relay = startProcess({
      folder: freshFolder({ 'users.json': JSON.stringify({ users: [] }) }),
      environment: { ...inFrontOf('http://127.0.0.1:9'), WORKERS: '2', ...environment },
    });
    expect((await call(await relay.listening(), '/readyz')).status).toBe(503);
  });
});

describeWithRedis('workers that are told to stop', () => {
  test('are not ready at once, let streams finish, and the process exits 0', async () => {
    const deployment = await startWorkersRelay({
      workers: 2,
      environment: { ...GRACE, SHUTDOWN_DELAY_MS: '1000' },
    });
    const { relay, port, logged, lines, scrape } = deployment;
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    expect((await call(port, '/readyz')).status).toBe(200);
    relay.signal('SIGTERM');
    await logged(3, ({ msg }) => msg === 'shutting down');
    expect((await call(port, '/readyz')).status).toBe(503);
    expect((await call(port, '/readyz')).status).toBe(503);
    // Once nothing listens any more, the streams still run, and their end can be watched.
    while (await call(port, '/healthz').catch(() => undefined)) await sleep(20);
    expect(await scrape()).toContain('bot_relay_ready{check="accepting",worker="2"} 0');
    expect(lines(({ msg }) => msg === 'stopped')).toEqual([]);
    // One ends before the other, and is not replaced.
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
  });

  test('end streams truthfully at the end of the grace, which SIGINT begins without the delay', async () => {
    const environment = { SHUTDOWN_GRACE_MS: '100', SHUTDOWN_DELAY_MS: '60000' };
    const deployment = await startWorkersRelay({ workers: 2, environment });
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    deployment.relay.signal('SIGINT');
    expect(await deployment.relay.exited).toEqual({ code: 0, signal: null });
    for (const { client } of streams) {
      const { body, complete } = dechunk(client.text());
      expect(body).toMatch(/^data: 1\n\nevent: error\ndata: \{.*"code":"draining".*\}\n\n$/);
      expect(complete).toBe(true);
    }
  });

  test('take the press of a key that reaches each of them for one, however late the primary is', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
    const { relay, lines, logged } = deployment;
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    for (const pid of workerPids(deployment).values()) process.kill(pid, 'SIGINT');
    await logged(2, ({ msg }) => msg === 'shutting down');
    await sleep(LATER_MS);
    relay.signal('SIGINT');
    await logged(3, ({ msg }) => msg === 'shutting down');
    // They have nothing to show for what they ignore: give them time to do the wrong thing.
    await sleep(200);
    for (const { finish } of streams) finish();
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    for (const { client } of streams) expect(dechunk(client.text())).toMatchObject({ complete: true });
    expect(lines(({ msg }) => msg === 'stopped at once')).toEqual([]);
  });

  test('end at once with a second signal, also one that is stuck, and the process exits 1', async () => {
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
    const exited = await Promise.race([relay.exited, sleep(5_000)]);
    // One that is left stopped never ends.
    if (lives(stuck)) process.kill(stuck, 'SIGCONT');
    expect(exited).toEqual({ code: 1, signal: null });
    expect(lines(({ msg }) => msg === 'stopped at once')).toHaveLength(1);
    expect(pids.filter(lives)).toEqual([]);
    for (const { client } of streams) {
      await client.closed;
      expect(dechunk(client.text())).toMatchObject({ complete: false });
    }
  });

  test('kill the one that hangs when even the longest shutdown is over, and the process exits 1', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: { SHUTDOWN_GRACE_MS: '100' } });
    const { relay, lines } = deployment;
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    const pids = workerPids(deployment);
    const stuck = pids.get(2) as number;
    process.kill(stuck, 'SIGSTOP');
    relay.signal('SIGTERM');
    const exited = await Promise.race([relay.exited, sleep(25_000)]);
    // One that is left stopped never ends.
    if (lives(stuck)) process.kill(stuck, 'SIGCONT');
    expect(exited).toEqual({ code: 1, signal: null });
    expect([...pids.values()].filter(lives)).toEqual([]);
    const [killed, ...others] = lines(({ msg }) => msg === 'worker did not stop, killed');
    expect(killed).toMatchObject({ level: 'error', worker: 2, pid: stuck });
    expect(others).toEqual([]);
    // Not before one that is well has had its grace and its last words.
    const [stopping] = lines(({ msg, worker }) => msg === 'shutting down' && worker === undefined);
    const tookMs = Date.parse(String(killed?.time)) - Date.parse(String(stopping?.time));
    expect(tookMs).toBeGreaterThan(6_100);
    const [served, lost] = streams.map(({ client }) => dechunk(client.text()));
    expect(served).toMatchObject({ complete: true });
    expect(lost).toMatchObject({ complete: false });
  });

  test('tell of one that dies meanwhile; the other finishes, and the process exits 1', async () => {
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
  });
});

describeWithRedis('a worker that dies', () => {
  test('is replaced by one with its number; the stream at the other one goes on', async () => {
    const deployment = await startWorkersRelay({ workers: 2 });
    const { relay, port, logged } = deployment;
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
    relay.signal('SIGTERM');
    expect(await relay.exited).toEqual({ code: 0, signal: null });
  });

  test('again and again costs longer and longer pauses, while the other serves', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
    const { relay, port, folder, logged, lines } = deployment;
    const [stream] = await deployment.streamAtEach(2, await deployment.signIn());
    const swapUsers = (from: string, to: string) => renameSync(join(folder, from), join(folder, to));
    swapUsers('users.json', 'users.away');
    process.kill(workerPids(deployment).get(2) as number, 'SIGKILL');
    const [, second, third] = await logged(3, ({ msg }) => msg === 'worker ended');
    expect(second).toMatchObject({ worker: 2, exitCode: 78 });
    expect(third?.replacedInMs).toBe(2 * Number(second?.replacedInMs));
    expect((await call(port, '/readyz')).status).toBe(200);
    expect(Date.parse(String(third?.time)) - Date.parse(String(second?.time))).toBeGreaterThanOrEqual(
      Number(second?.replacedInMs),
    );
    // After a stop the pause is over for nobody, and the stop does not wait for it.
    relay.signal('SIGTERM');
    await logged(2, ({ msg }) => msg === 'shutting down');
    await sleep(Number(third?.replacedInMs) + 200);
    expect([...workerPids(deployment).keys()]).toEqual([1]);
    stream?.finish();
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(lines(({ msg }) => msg === 'worker ended')).toHaveLength(3);
  });

  test('by a signal of its own drains, and is replaced', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
    const [stream] = await deployment.streamAtEach(2, await deployment.signIn());
    process.kill(workerPids(deployment).get(1) as number, 'SIGTERM');
    await deployment.logged(1, ({ msg, worker }) => msg === 'shutting down' && worker === 1);
    stream?.finish();
    await deployment.logged(1, ({ msg, level }) => msg === 'worker ended' && level === 'warn');
    expect(dechunk(stream?.client.text() ?? '')).toMatchObject({ complete: true });
    await deployment.logged(2, ({ msg, worker }) => msg === 'listening' && worker === 1);
  });
});

describeWithRedis('a primary that is killed', () => {
  test('leaves no worker behind, and no port', async () => {
    const deployment = await startWorkersRelay({ workers: 2, environment: GRACE });
    const { relay, port } = deployment;
    const streams = await deployment.streamAtEach(2, await deployment.signIn());
    const pids = [...workerPids(deployment).values()];
    expect(pids.filter(lives)).toHaveLength(2);
    relay.signal('SIGKILL');
    // Over for the test when nobody can write to its output any more: the workers neither.
    expect(await relay.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(pids.filter(lives)).toEqual([]);
    for (const { client } of streams) {
      await client.closed;
      expect(dechunk(client.text())).toMatchObject({ complete: false });
    }
    await expect(call(port, '/healthz')).rejects.toThrow('ECONNREFUSED');
  });
});

describe('workers that cannot start', () => {
  const settings = (more: Record<string, string>) => ({
    ...inFrontOf('http://127.0.0.1:9'),
    // Nobody is there, which is no reason not to start.
    REDIS_URL: 'redis://127.0.0.1:1',
    WORKERS: '3',
    ...more,
  });

  test.each(['PORT', 'METRICS_PORT'])('because %s is taken end the process in one line', async (name) => {
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
  });

  test('for want of users or of a setting end the process before there is any', async () => {
    const noUsers = startProcess({ environment: settings({}) });
    expect(await noUsers.exited).toEqual({ code: 78, signal: null });
    expect(noUsers.stderr()).toMatch(/^USERS_FILE: [^\n]*\n$/);
    const noRedis = startProcess({ environment: settings({ REDIS_URL: '' }) });
    expect(await noRedis.exited).toEqual({ code: 78, signal: null });
    expect(noRedis.stderr()).toContain('\n  - REDIS_URL must be set with WORKERS other than 1\n');
    expect(noUsers.stdout() + noRedis.stdout()).toBe('');
  });

  test('end the process with the exit code of the first that cannot', async () => {
    const folder = freshFolder({ 'users.json': '{"users":[]}' });
    // The primary still finds the file that its workers miss.
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
  });

  test('because the system ends one say so, and end the process with 1', async () => {
    const folder = freshFolder({ 'users.json': '{"users":[]}' });
    const code = encodeURIComponent("if (process.argv[2] === 'worker') process.kill(process.pid, 'SIGKILL')");
    const nodeArgs = ['--import', `data:text/javascript,${code}`];
    const relay = startProcess({ folder, environment: settings({}), nodeArgs });
    expect(await relay.exited).toEqual({ code: 1, signal: null });
    expect(linesOf(relay).filter(({ level }) => level === 'fatal')).toEqual([
      expect.objectContaining({ worker: 1, signal: 'SIGKILL', msg: 'worker never listened' }),
    ]);
  });

  test('without a primary say how the program is used', async () => {
    const relay = startProcess({ args: ['worker', '1'], environment: settings({}) });
    expect(await relay.exited).toEqual({ code: 64, signal: null });
    expect(relay.stderr()).toMatch(/^Usage: /);
  });
});
