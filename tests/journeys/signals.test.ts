import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { hashPassword } from '../../src/authenticate/password/password-hash.ts';
import { call } from '../support/call.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from '../support/process.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../support/raw-client.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../support/raw-upstream.ts';
import { MESSAGE, USER } from '../support/relay.ts';

/** Longer than what counts as the same press of a key. */
const LATER_MS = 650;

const users = { users: [{ name: USER.name, hash: await hashPassword(USER.password) }] };

let upstream: RawUpstream;
const clients: RawClient[] = [];
const secrets: string[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) client.socket.destroy();
  await stopProcesses(secrets.splice(0));
  await upstream.close();
});

interface Streaming {
  readonly relay: RelayProcess;
  readonly port: number;
  /** The clients, each of which has got its first event. */
  readonly streams: readonly RawClient[];
  /** Sends the last event and the end of each stream. */
  finish(): void;
}

/** A relay process with `count` streams open. */
async function startStreaming(
  count: number,
  environment: Record<string, string>,
  nodeArgs: readonly string[] = [],
): Promise<Streaming> {
  upstream = await startRawUpstream((socket) =>
    socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])),
  );
  const relay = startProcess({
    folder: freshFolder({ 'users.json': JSON.stringify(users) }),
    environment: {
      ...inFrontOf(upstream.url),
      ...environment,
    },
    nodeArgs,
  });
  const port = await relay.listening();
  const cookie = await signInAt(port, USER.name, USER.password);
  secrets.push(cookie.slice(cookie.indexOf('=') + 1));
  const streams = Array.from({ length: count }, () => rawClient(port, rawMessage({ cookie, body: MESSAGE })));
  clients.push(...streams);
  await Promise.all(streams.map((stream) => stream.waitFor('data: 1\n\n')));
  return {
    relay,
    port,
    streams,
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

const GRACE = { SHUTDOWN_GRACE_MS: '60000' };

describe('a process that is told to stop', () => {
  test('is not ready at once, lets streams finish and exits 0 (O1)', async () => {
    const streaming = await startStreaming(3, { ...GRACE, SHUTDOWN_DELAY_MS: '1000' });
    const { relay, port, streams } = streaming;
    expect(await call(port, '/readyz')).toMatchObject({ status: 200 });
    await stop(streaming);
    expect(await call(port, '/readyz')).toMatchObject({ status: 503 });
    expect(await call(port, '/healthz')).toMatchObject({ status: 200 });
    // Once nothing listens any more, the streams still run.
    await expect(refused(port)).resolves.toBe('ECONNREFUSED');
    expect(relay.stdout()).not.toContain('"msg":"stopped"');
    streaming.finish();
    const finishedAt = performance.now();
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(performance.now() - finishedAt).toBeLessThan(1000);
    for (const stream of streams) {
      expect(dechunk(stream.text())).toMatchObject({ body: 'data: 1\n\ndata: 2\n\n', complete: true });
    }
    expect(relay.stdout()).toMatch(/"msg":"stopped"/);
    expect(relay.stderr()).toBe('');
  });

  test('ends streams truthfully at the end of the grace, and exits 0 (O1)', async () => {
    const streaming = await startStreaming(2, { SHUTDOWN_GRACE_MS: '100' });
    await stop(streaming, 'SIGINT');
    expect(await streaming.relay.exited).toEqual({ code: 0, signal: null });
    for (const stream of streaming.streams) {
      const { body, complete } = dechunk(stream.text());
      expect(body).toMatch(/^data: 1\n\nevent: error\ndata: \{.*"code":"draining".*\}\n\n$/);
      expect(complete).toBe(true);
    }
  });

  test('takes no new connections as soon as it gets SIGINT, whatever the delay', async () => {
    const streaming = await startStreaming(1, { ...GRACE, SHUTDOWN_DELAY_MS: '60000' });
    await stop(streaming, 'SIGINT');
    await expect(refused(streaming.port)).resolves.toBe('ECONNREFUSED');
    streaming.finish();
    expect(await streaming.relay.exited).toEqual({ code: 0, signal: null });
  });

  test('takes a second signal that comes with the first for the same one (O1)', async () => {
    const streaming = await startStreaming(1, GRACE);
    await stop(streaming, 'SIGINT');
    streaming.relay.signal('SIGTERM');
    // It has nothing to show for a signal that it ignores: give it time to do the wrong thing.
    await sleep(100);
    streaming.finish();
    expect(await streaming.relay.exited).toEqual({ code: 0, signal: null });
  });

  test('exits at once with 1 on a second signal that comes later (O1)', async () => {
    const streaming = await startStreaming(1, GRACE);
    await stop(streaming);
    await sleep(LATER_MS);
    streaming.relay.signal('SIGTERM');
    expect(await streaming.relay.exited).toEqual({ code: 1, signal: null });
    expect(streaming.relay.stdout()).toContain('"msg":"stopped at once"');
    await streaming.streams[0]?.closed;
    expect(dechunk(streaming.streams[0]?.text() ?? '')).toMatchObject({ complete: false });
  });
});

describe('a process that crashes', () => {
  const crashOnSignal = (what: string) =>
    `data:text/javascript,${encodeURIComponent(`process.on('SIGUSR2', () => { ${what} })`)}`;

  test.each([
    ['an error', "throw new Error('crash for the test')", []],
    [
      'an error, traced',
      "throw new Error('crash for the test')",
      ['--trace-uncaught', '--enable-source-maps'],
    ],
    ['a rejection', "Promise.reject(new Error('crash for the test'))", []],
    ['something that is no error', "setTimeout(() => { throw 'crash for the test' })", []],
  ])('of %s says why, shows no secret and exits 1 (O4)', async (_what, crash, nodeArgs) => {
    const { relay } = await startStreaming(1, {}, [...nodeArgs, '--import', crashOnSignal(crash)]);
    relay.signal('SIGUSR2');
    expect(await relay.exited).toEqual({ code: 1, signal: null });
    // The scan for canaries and the session's id is in `stopProcesses`.
    // A line that was being written just then may come behind this one.
    expect(relay.stdout()).toMatch(/^\{"level":"fatal",.*crash for the test.*"msg":"uncaught"\}$/m);
    expect(relay.stderr()).toBe('');
  });
});

/** Resolves with the error of a connection to `port` as soon as there is one. */
async function refused(port: number): Promise<string> {
  for (;;) {
    try {
      await call(port, '/healthz');
      await sleep(20);
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException;
      // What the listener had not taken when it closed is reset; the next one finds no listener.
      if (code !== 'ECONNRESET') return code;
    }
  }
}
