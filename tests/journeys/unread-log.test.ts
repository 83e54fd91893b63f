import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { freePort } from '../support/free-port.ts';
import { freshFolder, inFrontOf, stopProcesses } from '../support/process.ts';
import { type Kind, type ReadableOutput, readableOutput, removeOutputs } from '../support/readable-output.ts';
import { workerPids } from '../support/workers.ts';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const REQUESTS = 50;
/** Longer than what counts as the same press of a key. */
const LATER_MS = 650;
const DRAINING = { SHUTDOWN_DELAY_MS: '60000' };
const WORKERS = { WORKERS: '2', REDIS_URL: 'redis://127.0.0.1:1' };
const BOTH_WORKERS = /^process_max_fds\{worker="1"\}[\s\S]*^process_max_fds\{worker="2"\}/m;
/** Fills standard output, unless it is a file, with lines of dots; and has a fault come with SIGUSR2. */
const PRELOADED = `
  import { fstatSync, writeSync } from 'node:fs';
  import { Socket } from 'node:net';
  process.on('SIGUSR2', () => { throw new Error('crash for the test') });
  const fill = () => {
    try {
      for (let n = 0; ; n++) writeSync(1, '.'.repeat(n % 2 ? 63 : 1023) + '\\n');
    } catch {}
  };
  if (!fstatSync(1).isFile()) {
    const socket = new Socket({ fd: 1, readable: false, writable: true });
    // Node reads a little of a socket in advance.
    for (let n = 0; n < 5; n++) {
      fill();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
    // As a process finds it that is started.
    socket._handle.setBlocking(true);
    socket.destroy();
  }`;

const children: ChildProcess[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await stopProcesses();
  removeOutputs();
});

interface Unread {
  readonly pid: number;
  readonly port: number;
  readonly metricsPort: number;
  readonly output: ReadableOutput;
  readonly exited: Promise<number | null>;
  signal(name: NodeJS.Signals): void;
  /** The messages of what has been read. */
  messages(): string[];
}

/** Starts a relay whose standard output is not read. */
async function startUnread(kind: Kind, environment: Record<string, string> = {}): Promise<Unread> {
  const port = await freePort();
  const metricsPort = await freePort();
  const output = readableOutput(kind);
  const child = spawn(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(PRELOADED)}`, MAIN],
    {
      cwd: freshFolder({ 'users.json': '{"users":[]}' }),
      env: {
        ...inFrontOf('http://127.0.0.1:9'),
        SHUTDOWN_DELAY_MS: '0',
        ...environment,
        PORT: String(port),
        METRICS_PORT: String(metricsPort),
      },
      stdio: ['ignore', output.stdio, 'inherit'],
    },
  );
  children.push(child);
  const read = output.of(child);
  await answering(port, '/healthz', /^/);
  // Also of the last worker.
  await answering(metricsPort, '/metrics', environment.WORKERS ? BOTH_WORKERS : /^/);
  return {
    pid: child.pid as number,
    port,
    metricsPort,
    output: read,
    exited: new Promise((resolve) => child.once('exit', resolve)),
    signal: (name) => void child.kill(name),
    messages: () =>
      read
        .text()
        .split('\n')
        .filter((line) => !/^\.*$/.test(line))
        .map((line) => (JSON.parse(line) as { msg: string }).msg),
  };
}

/** Resolves as soon as what is at `path` matches. */
async function answering(port: number, path: string, pattern: RegExp): Promise<void> {
  const deadline = performance.now() + 15_000;
  for (;;) {
    const body = await call(port, path).then(
      (answer) => answer.body,
      () => undefined,
    );
    if (body !== undefined && pattern.test(body)) return;
    if (performance.now() > deadline) throw new Error(`no ${pattern} at ${path}: ${body}`);
    await sleep(20);
  }
}

/** Has the relay log, and resolves with how many of `REQUESTS` it has answered. */
async function request({ port }: Unread): Promise<number> {
  let answered = 0;
  for (let n = 0; n < REQUESTS; n++) {
    const answer = await call(port, '/nothing').catch(() => undefined);
    if (answer) answered++;
  }
  return answered;
}

/** Resolves with the exit code, and how long `end` and the exit took, in ms. */
async function timed(relay: Unread, end: () => void) {
  const begun = performance.now();
  end();
  return { code: await relay.exited, ms: performance.now() - begun };
}

/** Half a second for two processes each, and as much again for a machine that is busy. */
const SOON_MS = 2000;

describe.each(['pipe', 'socket', 'file'] as const)(
  'a relay whose log goes to a %s that nobody reads',
  (kind) => {
    test('goes on serving, and loses nothing if somebody reads again', async () => {
      const relay = await startUnread(kind);
      expect(await request(relay)).toBe(REQUESTS);
      expect(await call(relay.port, '/healthz')).toMatchObject({ status: 200 });
      const { body } = await call(relay.metricsPort, '/metrics');
      expect(body).toContain('\nbot_relay_log_lines_dropped_total 0\n');
      relay.output.read();
      relay.signal('SIGTERM');
      expect(await relay.exited).toBe(0);
      await relay.output.ended;
      const messages = relay.messages();
      expect(messages.filter((msg) => msg === 'request')).toHaveLength(REQUESTS);
      expect(messages.at(-1)).toBe('stopped');
    });

    test('exits with 0 soon after SIGTERM', async () => {
      const relay = await startUnread(kind);
      expect(await request(relay)).toBe(REQUESTS);
      const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
      expect(code).toBe(0);
      expect(ms).toBeLessThan(SOON_MS);
    });

    test('exits with 1 soon after a second signal', async () => {
      const relay = await startUnread(kind, DRAINING);
      expect(await request(relay)).toBe(REQUESTS);
      relay.signal('SIGTERM');
      await sleep(LATER_MS);
      const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
      expect(code).toBe(1);
      expect(ms).toBeLessThan(SOON_MS);
    });

    test('exits with 1 soon after a fault that nothing caught', async () => {
      const relay = await startUnread(kind);
      expect(await request(relay)).toBe(REQUESTS);
      const { code, ms } = await timed(relay, () => relay.signal('SIGUSR2'));
      expect(code).toBe(1);
      expect(ms).toBeLessThan(SOON_MS);
    });
  },
);

describe.each(['pipe', 'socket'] as const)('workers whose log goes to a %s that nobody reads', (kind) => {
  test('go on serving, and exit with 0 soon after SIGTERM', async () => {
    const relay = await startUnread(kind, WORKERS);
    expect(await request(relay)).toBe(REQUESTS);
    const { body } = await call(relay.metricsPort, '/metrics');
    for (const worker of ['primary', '1', '2'])
      expect(body).toContain(`\nbot_relay_log_lines_dropped_total{worker="${worker}"} 0\n`);
    const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
    expect(code).toBe(0);
    expect(ms).toBeLessThan(SOON_MS);
  });

  test('exit with 1 soon after a second signal', async () => {
    const relay = await startUnread(kind, { ...WORKERS, ...DRAINING });
    expect(await request(relay)).toBe(REQUESTS);
    relay.signal('SIGTERM');
    await sleep(LATER_MS);
    const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
    expect(code).toBe(1);
    expect(ms).toBeLessThan(SOON_MS);
  });

  test('go on serving while one of them is replaced', async () => {
    const relay = await startUnread(kind, WORKERS);
    expect(await request(relay)).toBe(REQUESTS);
    const before = workerPids({ relay });
    process.kill(before.get(1) as number, 'SIGKILL');
    const deadline = performance.now() + 15_000;
    while ((workerPids({ relay }).get(1) ?? before.get(1)) === before.get(1)) {
      expect(performance.now()).toBeLessThan(deadline);
      await sleep(50);
    }
    await answering(relay.metricsPort, '/metrics', BOTH_WORKERS);
    expect(await request(relay)).toBe(REQUESTS);
    const { code, ms } = await timed(relay, () => relay.signal('SIGTERM'));
    expect(code).toBe(0);
    expect(ms).toBeLessThan(SOON_MS);
  });

  test('lose nothing if somebody reads again', async () => {
    const relay = await startUnread(kind, WORKERS);
    expect(await request(relay)).toBe(REQUESTS);
    relay.output.read();
    relay.signal('SIGTERM');
    expect(await relay.exited).toBe(0);
    await relay.output.ended;
    const messages = relay.messages();
    expect(messages.filter((msg) => msg === 'request')).toHaveLength(REQUESTS);
    expect(messages.filter((msg) => msg === 'stopped')).toHaveLength(3);
  });
});

describe('a demo whose standard output is a full pipe', () => {
  test('starts and serves, and prints what it has to say as soon as somebody reads', async () => {
    const noService = { UPSTREAM_BASE_URL: '', UPSTREAM_API_KEYS: '', BOTS: '' };
    const relay = await startUnread('pipe', noService);
    expect(await call(relay.port, '/readyz')).toMatchObject({ status: 200 });
    relay.output.read();
    const deadline = performance.now() + 15_000;
    while (!relay.output.text().includes('demo mode') && performance.now() < deadline) await sleep(20);
    expect(relay.output.text()).toMatch(
      /^\.+\n[\s\S]*"msg":"listening"\}\n[\s\S]*bot-relay is running in demo mode/,
    );
  });
});
