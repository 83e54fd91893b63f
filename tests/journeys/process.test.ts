import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { afterAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { total } from '../harness/relay/metric-samples.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
  usersFile,
} from '../harness/relay/process.ts';
import { expectNoCanary, MESSAGE, USER } from '../harness/relay/relay.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

/** Longer than signals count as one, in ms. */
const LATER_MS = 650;

const upstreams: RawUpstream[] = [];
const clients: RawClient[] = [];
const secrets: string[] = [];
afterAll(async () => {
  for (const client of clients) client.socket.destroy();
  await stopProcesses(secrets);
  for (const upstream of upstreams) await upstream.close();
});

interface Streaming {
  readonly relay: RelayProcess;
  readonly port: number;
  readonly cookie: string;
  readonly upstream: RawUpstream;
  /** The clients; each has its first event. */
  readonly streams: readonly RawClient[];
  /** Sends the last event and the end of each stream. */
  finish(): void;
}

/** Starts a relay process and opens `count` streams. */
async function startStreaming(
  count: number,
  environment: Record<string, string>,
  nodeArgs: readonly string[] = [],
): Promise<Streaming> {
  const upstream = await startRawUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
  );
  upstreams.push(upstream);
  const relay = startProcess({
    folder: freshFolder({ 'users.json': usersFile() }),
    environment: {
      ...inFrontOf(upstream.url),
      ...environment,
    },
    nodeArgs,
  });
  const port = await relay.listening();
  const cookie = await signInAt(port, USER.name, USER.password);
  secrets.push(cookie.slice(cookie.indexOf('=') + 1));
  const streams = Array.from({ length: count }, (_, n) => {
    const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
    return rawClient(port, rawMessage({ cookie, body }));
  });
  clients.push(...streams);
  await Promise.all(streams.map((stream) => stream.waitFor('data: 1\n\n')));
  return {
    ...{ relay, port, cookie, upstream, streams },
    finish() {
      const end = Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]);
      for (const socket of upstream.sockets) socket.write(end);
    },
  };
}

async function stop({ relay }: Streaming, signal: NodeJS.Signals = 'SIGTERM') {
  relay.signal(signal);
  await relay.waitFor(/"msg":"shutting down"/);
}

/** Longer than any test takes. */
const GRACE = { SHUTDOWN_GRACE_MS: '600000' };

describe('a process that is told to stop', () => {
  testSideBySide([
    ['does nothing on SIGHUP without files to read; on SIGTERM is not ready, and still serves', delayStop],
    ['takes no new connection after its delay, lets streams finish and exits 0', stopAfterDelay],
    [
      'after SIGINT, whatever the delay, ends streams with an error event at the end of the grace, and exits 0',
      stopAfterGrace,
    ],
    ['serves its metrics until it ends, also while it drains', servesMetrics],
    ['counts two signals at the same time as one', signalTwiceAtOnce],
    ['exits at once with 1 on a second signal that comes later', signalTwice],
  ]);
});

describe('a process that crashes', () => {
  const throwing = "throw new Error('crash for the test')";
  const tracing = ['--trace-uncaught', '--enable-source-maps'];
  testSideBySide([
    // `unread-log.test.ts` has an error without a trace.
    [
      'with an uncaught error and a trace logs why, shows no secret and exits 1',
      () => crash(throwing, tracing),
    ],
    [
      'with a rejection logs why, shows no secret and exits 1',
      () => crash("Promise.reject(new Error('crash for the test'))"),
    ],
    [
      'with a thrown text logs why, shows no secret and exits 1',
      () => crash("setTimeout(() => { throw 'crash for the test' })"),
    ],
  ]);
});

/** From now on, a process can open nothing: its limit is the lowest number that no open file has. */
function openNothing(pid: number): void {
  const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let most = 0;
  while (open.has(most)) most += 1;
  const { status, stderr } = spawnSync('prlimit', [`--pid=${pid}`, `--nofile=${most}:${most}`]);
  if (status !== 0) throw new Error(`prlimit failed: ${stderr}`);
}

describe('a relay with no open file left', () => {
  test.each([
    ['a message', rawMessage({ headers: ['Connection: close'] })],
    [
      'a suspend',
      rawMessage({
        path: '/generic/ns/acme/bot-provider/helper/message/suspend?custom_channel_id=c1',
        headers: ['Connection: close'],
        body: '',
      }),
    ],
  ])('refuses %s as busy, and not as a fault of the service', async (_what, request) => {
    const { relay, port, cookie, upstream } = await startStreaming(0, {});
    const client = rawClient(port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('{"status":"ok"}');
    const before = client.text().length;
    openNothing(relay.pid);
    client.socket.write(request.replace('\r\n\r\n', `\r\nCookie: ${cookie}\r\n\r\n`));
    await client.closed;
    const answer = parseAnswer(client.text().slice(before));
    expectProblem(answer, 503, 'busy', { retryable: 'new message' });
    expect(answer.headers).toHaveProperty('retry-after');
    await relay.waitFor(/"outcome":"busy","cause":"EMFILE"/);
    expect(upstream.requests).toEqual([]);
  });
});

async function servesMetrics() {
  const metricsPort = await freePort();
  const streaming = await startStreaming(1, { METRICS_PORT: String(metricsPort) });
  const { relay, port } = streaming;
  const scrape = async () => (await call(metricsPort, '/metrics')).body;
  const open = await scrape();
  expect(total(open, 'bot_relay_ready', { check: 'accepting' })).toBe(1);
  expect(total(open, 'bot_relay_open_streams')).toBe(1);
  expect(total(open, 'process_resident_memory_bytes')).toBeGreaterThan(10_000_000);
  expect((await call(port, '/metrics')).status).toBe(404);
  await stop(streaming);
  const draining = await scrape();
  expect(total(draining, 'bot_relay_ready')).toBe(0);
  expect(total(draining, 'bot_relay_open_streams')).toBe(1);
  streaming.finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expectNoCanary(open + draining);
  expect(relay.stdout()).not.toContain('/metrics');
}

async function delayStop() {
  const streaming = await startStreaming(1, { ...GRACE, SHUTDOWN_DELAY_MS: '600000' });
  const { relay, port } = streaming;
  relay.signal('SIGHUP');
  await relay.waitFor(/"files":0,"msg":"reading the files of keys and bots"/);
  expect(await call(port, '/readyz')).toMatchObject({ status: 200 });
  await stop(streaming);
  expect(await call(port, '/readyz')).toMatchObject({ status: 503 });
  expect(await call(port, '/healthz')).toMatchObject({ status: 200 });
}

async function stopAfterDelay() {
  const streaming = await startStreaming(3, { ...GRACE, SHUTDOWN_DELAY_MS: '100' });
  const { relay, port, streams } = streaming;
  await stop(streaming);
  // When the relay no longer listens, the streams still run.
  await expect(refused(port)).resolves.toBe('ECONNREFUSED');
  expect(relay.stdout()).not.toContain('"msg":"stopped"');
  streaming.finish();
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  for (const stream of streams) {
    expect(dechunk(stream.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
  }
  expect(relay.stdout()).toMatch(/"msg":"stopped"/);
  expect(relay.stderr()).toBe('');
}

async function stopAfterGrace() {
  const streaming = await startStreaming(2, { SHUTDOWN_DELAY_MS: '600000', SHUTDOWN_GRACE_MS: '100' });
  await stop(streaming, 'SIGINT');
  expect(await streaming.relay.exited).toEqual({ code: 0, signal: null });
  for (const stream of streaming.streams) {
    const { body, complete } = dechunk(stream.text());
    expect(body).toMatch(/^data: 1\n\nevent: error\ndata: \{.*"code":"answer_lost".*\}\n\n$/);
    expect(complete).toBe(true);
  }
}

async function signalTwiceAtOnce() {
  const streaming = await startStreaming(1, { ...GRACE, SHUTDOWN_DELAY_MS: '0' });
  // A process that is stopped gets both when it goes on. Two of one kind would be one.
  for (const signal of ['SIGSTOP', 'SIGINT', 'SIGTERM', 'SIGCONT'] as const) streaming.relay.signal(signal);
  await expect(refused(streaming.port)).resolves.toBe('ECONNREFUSED');
  streaming.finish();
  expect(await streaming.relay.exited).toEqual({ code: 0, signal: null });
}

async function signalTwice() {
  const streaming = await startStreaming(1, GRACE);
  await stop(streaming);
  // It has had the first signal; it gets the second one so much later, or even later.
  await sleep(LATER_MS);
  streaming.relay.signal('SIGTERM');
  expect(await streaming.relay.exited).toEqual({ code: 1, signal: null });
  expect(streaming.relay.stdout()).toContain('"msg":"stopped at once"');
  await streaming.streams[0]?.closed;
  expect(dechunk(streaming.streams[0]?.text() ?? '')).toMatchObject({ complete: false });
}

/** A process in which SIGUSR2 runs the code `what`. */
async function crash(what: string, nodeArgs: readonly string[] = []) {
  const onSignal = encodeURIComponent(`process.on('SIGUSR2', () => { ${what} })`);
  const { relay } = await startStreaming(1, {}, [
    ...nodeArgs,
    '--import',
    `data:text/javascript,${onSignal}`,
  ]);
  relay.signal('SIGUSR2');
  expect(await relay.exited).toEqual({ code: 1, signal: null });
  // The scan for canaries and the session's id is in `stopProcesses`.
  // Another line may follow that was just being written.
  expect(relay.stdout()).toMatch(/^\{"level":"fatal",.*crash for the test.*"msg":"uncaught"\}$/m);
  expect(relay.stderr()).toBe('');
}

/** Connects to `port` until it fails; resolves with the error. */
async function refused(port: number): Promise<string> {
  for (;;) {
    try {
      await call(port, '/healthz');
      await sleep(20);
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException;
      // A connection that was not accepted yet is reset; the next one is refused.
      if (code !== 'ECONNRESET') return code;
    }
  }
}
