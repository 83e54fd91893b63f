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
import { until } from '../harness/clock/until.ts';
import { startRelay } from '../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes, withSandboxes } from '../harness/service/launched-sandboxes.ts';
import {
  chunk,
  LAST_CHUNK,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const ONE = 'data: 1\n\n';
const RUN = ['run.init', 'run.done'].map((name) => `data: {"eventType":"asgard.${name}"}\n\n`).join('');
const LONG_GRACE = { SHUTDOWN_GRACE_MS: '60000' };

// Each case has its own relay, so that the cases can wait side by side.
const closings: (() => Promise<void>)[] = [];
afterAll(() => Promise.all(closings.map((close) => close())));

async function start(
  answer: string | Buffer = openStream(ONE),
  environment: Record<string, string> = {},
): Promise<RelayAndUpstream> {
  const pair = await startWithSandboxes((socket) => void socket.write(answer), {
    ...{ OPERATIONS: 'message,chat,sandbox', ...environment },
  });
  closings.push(pair.close);
  return pair;
}

/** A relay whose sessions have such limits; `sockets` are those of the streams, in their order. */
async function startWithLimits(limits: Partial<SessionLimits>) {
  const sockets: Socket[] = [];
  const onRequest = (socket: Socket) => {
    sockets.push(socket);
    socket.write(openStream('data: 0\n\n'));
  };
  const upstream = await startRawUpstream(withSandboxes(() => upstream, onRequest));
  const relay = await startRelay(upstream.url, { OPERATIONS: 'chat,sandbox' }, limits);
  closings.push(relay.close, upstream.close);
  return { relay, sockets, cookie: await relay.signIn() };
}

const logOut = ({ relay, cookie }: Pick<RelayAndUpstream, 'relay' | 'cookie'>) =>
  call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
const lineOf = ({ relay }: Pick<RelayAndUpstream, 'relay'>) =>
  relay.logLine(({ bot }) => bot === 'acme/helper');

/** Holds the next check of a session, after it was read or before, until `release` is called. */
function holdCheck({ relay: { sessions } }: RelayAndUpstream, isRead: boolean) {
  const get = sessions.get.bind(sessions);
  const checked = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  jest.spyOn(sessions, 'get').mockImplementationOnce(async (key) => {
    const session = isRead ? await get(key) : undefined;
    checked.resolve();
    await released.promise;
    return isRead ? session : get(key);
  });
  return { checked: checked.promise, release: released.resolve };
}

/** Expects that it is cut, without an error event. */
async function breaks(kind: LiveKind, sent: string, came: string): Promise<void> {
  const pair = await start(openStream(sent));
  const client = openKind(pair, kind);
  await client.waitFor(came);
  pair.upstream.sockets[0]?.resetAndDestroy();
  await client.closed;
  expect(bodyOf(client)).toEqual({ body: came, complete: false });
  const line = await lineOf(pair);
  expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', status: 200 });
  expect(line.notResumed).toBeUndefined();
  expect(pair.upstream.requests).toHaveLength(1);
}

/** Expects that each client that leaves closes its upstream connection, and gives its place back. */
async function leaves(kind: LiveKind, sent: string | Buffer): Promise<void> {
  const pair = await start(sent, { MAX_STREAMS_PER_USER: '1' });
  for (let n = 1; n < 4; n += 1) {
    const client = openKind(pair, kind, `left-number-${n}`);
    await until(() => pair.upstream.requests.length === n);
    if (sent.length > 0) await client.waitFor(ONE);
    client.socket.destroy();
    await pair.relay.logLine(({ requestId }) => requestId === `${kind.id}left-number-${n}`);
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  }
}

const CASES: Record<string, (kind: LiveKind) => Promise<void>> = {
  async 'carries whole events only, and heartbeats between them; no deadline ends it'(kind) {
    const pair = await start(openStream(`${ONE}data: ha`), {
      ...{ HEARTBEAT_MS: '200', MAX_EXECUTION_MS: '300', UPSTREAM_RESPONSE_TIMEOUT_MS: '2000' },
    });
    const client = openKind(pair, kind);
    await client.waitFor(ONE);
    await until(() => bodyOf(client).body.split(':\n').length > 15);
    expect(bodyOf(client).body).toMatch(/^data: 1\n\n(:\n)+$/);
    pair.upstream.sockets[0]?.write(chunk('lf\n\n'));
    await client.waitFor('data: half\n\n');
    client.socket.destroy();
  },
  'that breaks between two events is cut': (kind) => breaks(kind, ONE, ONE),
  'that breaks inside an event is cut': (kind) => breaks(kind, `${ONE}data: ha`, ONE),
  'that breaks after a run is cut, although nothing of that is missing': (kind) => breaks(kind, RUN, RUN),
  async 'that the service ends ends in good order, also in the middle of a run'(kind) {
    const events = 'data: {"eventType":"asgard.run.init"}\n\nid: 7\ndata: 2\n\n';
    const client = openKind(await start(wholeStream(events)), kind, 'closing-one', ['Connection: close']);
    await client.closed;
    expect(bodyOf(client)).toEqual({ body: events, complete: true });
  },
  'ends at the service when its client leaves before the headers of its answer': (kind) => leaves(kind, ''),
  'ends at the service when its client leaves in the middle of it': (kind) => leaves(kind, openStream(ONE)),
  async 'is cut by a logout of its session, and no other one is'(kind) {
    const pair = await start();
    const mine = openKind(pair, kind);
    const others = openKind({ ...pair, cookie: await pair.relay.signIn() }, kind);
    await Promise.all([mine, others].map((client) => client.waitFor(ONE)));
    await logOut(pair);
    await mine.closed;
    expect(bodyOf(mine)).toEqual({ body: ONE, complete: false });
    await until(() => pair.upstream.sockets.filter(({ destroyed }) => destroyed).length === 1);
    for (const socket of pair.upstream.sockets) if (!socket.destroyed) socket.write(chunk('data: 2\n\n'));
    await others.waitFor('data: 2\n\n');
    others.socket.destroy();
    expect(await lineOf(pair)).toMatchObject({ outcome: 'session_ended' });
  },
  async 'that waits for its answer is ended by a logout with 401'(kind) {
    const pair = await start('');
    const client = openKind(pair, kind);
    await until(() => pair.upstream.requests.length === 1);
    await logOut(pair);
    await client.waitFor('"code":"session_ended"');
    expect(parseAnswer(client.text()).status).toBe(401);
    client.socket.destroy();
  },
  async 'is refused by a logout that comes between the check of the session and its beginning'(kind) {
    const pair = await start();
    const { checked, release } = holdCheck(pair, true);
    const client = openKind(pair, kind);
    await checked;
    await logOut(pair);
    release();
    await client.waitFor('"code":"unauthenticated"');
    client.socket.destroy();
    expect(pair.upstream.requests).toEqual([]);
  },
  async 'whose session is checked as draining begins is refused, and does not reach the service'(kind) {
    const pair = await start(openStream(ONE), LONG_GRACE);
    const { checked, release } = holdCheck(pair, false);
    const client = openKind(pair, kind);
    await checked;
    const closed = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    release();
    await client.waitFor('"code":"draining"');
    expect(parseAnswer(client.text()).status).toBe(503);
    client.socket.destroy();
    await closed;
    expect(pair.upstream.requests).toEqual([]);
  },
  async 'is ended by the idle limit, although it carries data'(kind) {
    const at = await startWithLimits({ idleMs: 4000 });
    const client = openKind(at, kind);
    const delivering = setInterval(() => at.sockets[0]?.write(chunk(ONE)), 100);
    await client.closed;
    clearInterval(delivering);
    expect(bodyOf(client)).toMatchObject({ complete: false });
    expect(await lineOf(at)).toMatchObject({ outcome: 'session_ended' });
  },
  async 'is cut as soon as draining begins, and no message is'(kind) {
    const pair = await start(openStream(ONE), LONG_GRACE);
    const text = (await pair.relay.send(pair.cookie)).text();
    const client = openKind(pair, kind);
    await client.waitFor(ONE);
    const closed = pair.relay.close();
    await client.closed;
    expect(bodyOf(client)).toEqual({ body: ONE, complete: false });
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await text).toBe(`${ONE}data: 2\n\n`);
    await closed;
    const [line] = pair.relay.logs.filter(({ method, bot }) => method === 'GET' && bot !== undefined);
    expect(line).toMatchObject({ outcome: 'draining' });
  },
};

testSideBySide(
  LIVE_KINDS.flatMap((kind) =>
    Object.entries(CASES).map(([title, run]): [string, () => Promise<void>] => [
      `${kind.name} ${title}`,
      () => run(kind),
    ]),
  ),
);

// It keeps the process busy, so that it runs alone.
test('a live stream is read no faster than its client reads it, and nothing of it is lost', async () => {
  const much = Buffer.alloc(9 * (2 << 20), 'data: a\n\n');
  const pair = await start(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(much), Buffer.from(LAST_CHUNK)]));
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
