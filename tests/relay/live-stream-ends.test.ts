import type { Socket } from 'node:net';
import { afterAll, expect, jest, test } from '@jest/globals';
import type { SessionLimits } from '../../src/authenticate/sessions/session.ts';
import { call, parseAnswer } from '../harness/clients/call.ts';
import {
  bodyOf,
  LIVE_KINDS,
  type LiveKind,
  openKind,
  openLive,
  openStream,
} from '../harness/clients/live.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, until } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes, withSandboxes } from '../harness/service/launched-sandboxes.ts';
import {
  chunk,
  LAST_CHUNK,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

// Each case has its own relay, so that the cases can wait side by side.
const closings: (() => Promise<void>)[] = [];
afterAll(() => Promise.all(closings.map((close) => close())));

async function start(
  answer: string | Buffer | ((socket: Socket) => void),
  environment: Record<string, string> = {},
): Promise<RelayAndUpstream> {
  const onRequest = typeof answer === 'function' ? answer : (socket: Socket) => void socket.write(answer);
  const pair = await startWithSandboxes(onRequest, { OPERATIONS: 'message,chat,sandbox', ...environment });
  closings.push(pair.close);
  return pair;
}

const RUN = ['run.init', 'run.done'].map((name) => `data: {"eventType":"asgard.${name}"}\n\n`).join('');

const casesOf = (kind: LiveKind): (readonly [string, () => Promise<void>])[] => [
  [
    `${kind.name} carries whole events only, and heartbeats between them; no deadline ends it`,
    async () => {
      const pair = await start(openStream('data: 1\n\ndata: ha'), {
        HEARTBEAT_MS: '200',
        MAX_EXECUTION_MS: '300',
        UPSTREAM_RESPONSE_TIMEOUT_MS: '2000',
      });
      const client = openKind(pair, kind);
      await client.waitFor('data: 1\n\n');
      const beats = () => bodyOf(client).body.split(':\n').length - 1;
      await until(() => beats() >= 15);
      expect(bodyOf(client).body).toMatch(/^data: 1\n\n(:\n)+$/);
      pair.upstream.sockets[0]?.write(chunk('lf\n\n'));
      await client.waitFor('data: half\n\n');
      client.socket.destroy();
    },
  ],
  ...(
    [
      ['between two events', 'data: 1\n\n', 'data: 1\n\n'],
      ['inside an event', 'data: 1\n\ndata: ha', 'data: 1\n\n'],
      ['after a run, although nothing of that is missing', RUN, RUN],
    ] as const
  ).map(
    ([where, sent, came]) =>
      [
        `${kind.name} that breaks ${where} is cut, without an error event`,
        async () => {
          const pair = await start(openStream(sent));
          const client = openKind(pair, kind);
          await client.waitFor(came);
          pair.upstream.sockets[0]?.resetAndDestroy();
          await client.closed;
          expect(bodyOf(client)).toEqual({ body: came, complete: false });
          const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
          expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', status: 200 });
          expect(line.notResumed).toBeUndefined();
          expect(pair.upstream.requests).toHaveLength(1);
        },
      ] as const,
  ),
  [
    `${kind.name} that the service ends ends in good order, also in the middle of a run`,
    async () => {
      const events = 'data: {"eventType":"asgard.run.init"}\n\nid: 7\ndata: 2\n\n';
      const pair = await start(wholeStream(events));
      const client = openKind(pair, kind, 'closing-one', ['Connection: close']);
      await client.closed;
      expect(bodyOf(client)).toEqual({ body: events, complete: true });
    },
  ],
  ...(
    [
      ['before the headers of its answer', ''],
      ['in the middle of it', openStream('data: 1\n\n')],
    ] as const
  ).map(
    ([when, sent]) =>
      [
        `a client that leaves ${kind.name} ${when} closes the upstream connection, and gives its place back`,
        async () => {
          const pair = await start((socket) => void socket.write(sent), { MAX_STREAMS_PER_USER: '1' });
          for (let n = 1; n < 4; n += 1) {
            const client = openKind(pair, kind, `left-number-${n}`);
            await until(() => pair.upstream.requests.length === n);
            if (sent.length > 0) await client.waitFor('data: 1\n\n');
            client.socket.destroy();
            await pair.relay.logLine(({ requestId }) => requestId === `${kind.id}left-number-${n}`);
            await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
          }
        },
      ] as const,
  ),
  [
    `a logout cuts ${kind.name} of its session, and of no other one`,
    async () => {
      const pair = await start(openStream('data: 1\n\n'));
      const other = await pair.relay.signIn();
      const [mine, others] = [openKind(pair, kind), openKind({ ...pair, cookie: other }, kind)];
      await Promise.all([mine, others].map((client) => client.waitFor('data: 1\n\n')));
      await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
      await mine.closed;
      expect(bodyOf(mine)).toEqual({ body: 'data: 1\n\n', complete: false });
      await until(() => pair.upstream.sockets.filter(({ destroyed }) => destroyed).length === 1);
      for (const socket of pair.upstream.sockets) if (!socket.destroyed) socket.write(chunk('data: 2\n\n'));
      await others.waitFor('data: 2\n\n');
      others.socket.destroy();
      expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
        outcome: 'session_ended',
      });
    },
  ],
  [
    `a logout while ${kind.name} waits for its answer ends it with 401`,
    async () => {
      const pair = await start('');
      const client = openKind(pair, kind);
      await until(() => pair.upstream.requests.length === 1);
      await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
      await client.waitFor('"code":"session_ended"');
      expect(parseAnswer(client.text()).status).toBe(401);
      client.socket.destroy();
    },
  ],
  [
    `a logout that comes between the check of the session and ${kind.name} refuses the stream`,
    async () => {
      const pair = await start(openStream('data: 1\n\n'));
      const { sessions } = pair.relay;
      const get = sessions.get.bind(sessions);
      const checked = Promise.withResolvers<void>();
      const loggedOut = Promise.withResolvers<void>();
      jest.spyOn(sessions, 'get').mockImplementationOnce(async (key) => {
        const session = await get(key);
        checked.resolve();
        await loggedOut.promise;
        return session;
      });
      const client = openKind(pair, kind);
      await checked.promise;
      await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
      loggedOut.resolve();
      await client.waitFor('"code":"unauthenticated"');
      client.socket.destroy();
      expect(pair.upstream.requests).toEqual([]);
    },
  ],
  [
    `${kind.name} whose session is checked as draining begins is refused, and does not reach the service`,
    async () => {
      const pair = await start(openStream('data: 1\n\n'), { SHUTDOWN_GRACE_MS: '60000' });
      const { sessions } = pair.relay;
      const get = sessions.get.bind(sessions);
      const checked = Promise.withResolvers<void>();
      const draining = Promise.withResolvers<void>();
      jest.spyOn(sessions, 'get').mockImplementationOnce(async (key) => {
        checked.resolve();
        await draining.promise;
        return get(key);
      });
      const client = openKind(pair, kind);
      await checked.promise;
      const closed = pair.relay.close();
      await until(() => pair.relay.lifecycle.isDraining());
      draining.resolve();
      await client.waitFor('"code":"draining"');
      expect(parseAnswer(client.text()).status).toBe(503);
      client.socket.destroy();
      await closed;
      expect(pair.upstream.requests).toEqual([]);
    },
  ],
  [
    `the idle limit ends ${kind.name}, although it carries data`,
    async () => {
      const { relay, sockets } = await startWithLimits({ idleMs: 4000 });
      const cookie = await relay.signIn();
      const client = openKind({ relay, cookie }, kind);
      const delivering = setInterval(() => sockets[0]?.write(chunk('data: 1\n\n')), 100);
      await client.closed;
      clearInterval(delivering);
      expect(bodyOf(client)).toMatchObject({ complete: false });
      expect(await relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
        outcome: 'session_ended',
      });
    },
  ],
  [
    `draining cuts ${kind.name} as soon as it begins, and no message`,
    async () => {
      const { upstream, relay } = await start(openStream('data: 1\n\n'), { SHUTDOWN_GRACE_MS: '60000' });
      const cookie = await relay.signIn();
      const message = await relay.send(cookie);
      const text = message.text();
      const client = openKind({ relay, cookie }, kind);
      await client.waitFor('data: 1\n\n');
      const closed = relay.close();
      await client.closed;
      expect(bodyOf(client)).toEqual({ body: 'data: 1\n\n', complete: false });
      upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
      expect(await text).toBe('data: 1\n\ndata: 2\n\n');
      await closed;
      const [line] = relay.logs.filter(({ method, bot }) => method === 'GET' && bot !== undefined);
      expect(line).toMatchObject({ outcome: 'draining' });
    },
  ],
];

testSideBySide(LIVE_KINDS.flatMap(casesOf));

// It keeps the process busy, so that it runs alone.
test('a live stream is read no faster than its client reads it, and nothing of it is lost', async () => {
  const much = Buffer.alloc(9 * (2 << 20), 'data: a\n\n');
  const pair = await start((socket) => {
    socket.write(STREAM_HEAD);
    socket.write(Buffer.concat([chunk(much), Buffer.from(LAST_CHUNK)]));
  });
  const client = openLive(pair);
  await client.waitFor('data: a\n\n');
  client.socket.pause();
  const waiting = () => pair.upstream.sockets[0]?.writableLength ?? 0;
  // It stays the same once the buffers between are full.
  for (let before = -1; waiting() !== before; ) {
    before = waiting();
    await sleep(400);
  }
  expect(waiting()).toBeGreaterThan(0);
  client.socket.resume();
  await until(() => waiting() === 0);
  await until(() => client.reads.at(-1)?.bytes.includes('0\r\n\r\n') === true);
  expect(bodyOf(client)).toEqual({ body: much.toString('latin1'), complete: true });
  client.socket.destroy();
});

/** A relay whose sessions have such limits; `sockets` are those of the streams, in their order. */
async function startWithLimits(limits: Partial<SessionLimits>) {
  const sockets: Socket[] = [];
  const upstream = await startRawUpstream(
    withSandboxes(
      () => upstream,
      (socket) => {
        sockets.push(socket);
        socket.write(openStream('data: 0\n\n'));
      },
    ),
  );
  const relay = await startRelay(upstream.url, { OPERATIONS: 'chat,sandbox' }, limits);
  closings.push(async () => {
    await relay.close();
    await upstream.close();
  });
  return { relay, sockets };
}
