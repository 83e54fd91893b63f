import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { COMPILE_CACHE, freshFolder, inFrontOf, stopProcesses } from '../harness/relay/process.ts';
import {
  type Kind,
  type ReadableOutput,
  readableOutput,
  removeOutputs,
} from '../harness/relay/readable-output.ts';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const REQUESTS = 20;
/** Longer than signals count as one, in ms. */
const LATER_MS = 650;
/** Longer than any test takes. */
const DRAINING = { SHUTDOWN_DELAY_MS: '600000' };
/** Fills standard output, unless it is a file, with lines of dots; SIGUSR2 then throws an error. */
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
    // Node.js reads a little of a socket in advance.
    for (let n = 0; n < 5; n++) {
      fill();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
    // As a new process finds it.
    socket._handle.setBlocking(true);
    socket.destroy();
  }`;

const children: ChildProcess[] = [];
afterAll(async () => {
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
  /** The messages of the log lines that were read. */
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
        ...COMPILE_CACHE,
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

/** Resolves when the answer at `path` matches. */
async function answering(port: number, path: string, pattern: RegExp): Promise<void> {
  const matches = ({ body }: { readonly body: string }) => pattern.test(body);
  await until(() => call(port, path).then(matches, () => false), 20);
}

/** How many of the relay's lines about requests were read. */
const requestsIn = ({ output }: Unread): number => output.text().match(/"msg":"request"\}\n/g)?.length ?? 0;

/** Makes the relay log by sending requests; resolves with how many of `REQUESTS` it has answered. */
async function request({ port }: Unread): Promise<number> {
  let answered = 0;
  for (let n = 0; n < REQUESTS; n++) {
    const answer = await call(port, '/nothing').catch(() => undefined);
    if (answer) answered++;
  }
  return answered;
}

/** Resolves when the relay has begun to shut down, and then so much later that another signal is a second one. */
async function drainingFor({ port }: Unread): Promise<void> {
  await answering(port, '/readyz', /"accepting":"failed"/);
  await sleep(LATER_MS);
}

async function readAgain(kind: Kind) {
  const relay = await startUnread(kind);
  expect(await request(relay)).toBe(REQUESTS);
  expect(await call(relay.port, '/healthz')).toMatchObject({ status: 200 });
  const { body } = await call(relay.metricsPort, '/metrics');
  expect(body).toContain('\nbot_relay_log_lines_dropped_total 0\n');
  relay.output.read();
  // At its end, the relay waits for its reader for a short time only.
  await until(() => requestsIn(relay) === REQUESTS, 20);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
  await relay.output.ended;
  expect(requestsIn(relay)).toBe(REQUESTS);
  expect(relay.messages().at(-1)).toBe('stopped');
}

async function stop() {
  const relay = await startUnread('pipe');
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(0);
}

async function stopTwice() {
  const relay = await startUnread('pipe', DRAINING);
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGTERM');
  await drainingFor(relay);
  relay.signal('SIGTERM');
  expect(await relay.exited).toBe(1);
}

async function crash() {
  const relay = await startUnread('pipe');
  expect(await request(relay)).toBe(REQUESTS);
  relay.signal('SIGUSR2');
  expect(await relay.exited).toBe(1);
}

async function startDemo() {
  const noService = { UPSTREAM_BASE_URL: '', UPSTREAM_API_KEYS: '', BOTS: '' };
  const relay = await startUnread('pipe', noService);
  expect(await call(relay.port, '/readyz')).toMatchObject({ status: 200 });
  relay.output.read();
  await until(() => relay.output.text().includes('demo mode'), 20);
  expect(relay.output.text()).toMatch(
    /^\.+\n[\s\S]*"msg":"listening"\}\n[\s\S]*bot-relay is running in demo mode/,
  );
}

// `log-output.test.ts` has a socket.
describe('a relay whose log goes to a pipe that nobody reads', () => {
  testSideBySide([
    ['goes on serving, and loses nothing if the log is read again', () => readAgain('pipe')],
    ['exits with 0 after SIGTERM', stop],
    ['exits with 1 after a second signal', stopTwice],
    ['exits with 1 after an uncaught error', crash],
  ]);
});

describe('a relay', () => {
  testSideBySide([
    // Nobody has to read a file, so an exit has nothing to wait for.
    ['whose log goes to a file serves and loses nothing', () => readAgain('file')],
    [
      'with a full pipe as standard output starts as a demo, and prints its banner when it is read',
      startDemo,
    ],
  ]);
});
