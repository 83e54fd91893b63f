import { afterAll, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { extendedIdleLimit, startSession } from '../../src/authenticate/sessions/session.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { change, idOf, stored } from '../harness/relay/sessions.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const MINUTE = 60_000;
const USER = { id: 'ada', name: 'ada' };

let upstream: RawUpstream;
let relay: TestRelay;
let cookie: string;
let id: string;
beforeAll(async () => {
  upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  relay = await startRelay(upstream.url);
});
beforeEach(async () => {
  cookie = await relay.signIn();
  id = idOf(cookie);
  const limits = { idleMs: MINUTE, absoluteMs: 2 * MINUTE };
  await change(relay.sessions, id, startSession(USER, limits, Date.now()));
});
afterAll(async () => {
  await relay.close();
  await upstream.close();
});

const session = () => call(relay.port, '/auth/session', { headers: { Cookie: cookie } });

describe('a session', () => {
  test('is never extended by GET /auth/session', async () => {
    const writes = [jest.spyOn(relay.sessions, 'extend'), jest.spyOn(relay.sessions, 'set')];
    const before = await stored(relay.sessions, id);
    const first = await session();
    expect(await session()).toMatchObject({ status: 200, body: first.body });
    expect(await stored(relay.sessions, id)).toEqual(before);
    for (const write of writes) expect(write).not.toHaveBeenCalled();
    jest.restoreAllMocks();
    expect(JSON.parse(first.body).idleExpiresAt).toBe(
      new Date(before?.idleExpiresAt as number).toISOString(),
    );
  });

  test('is extended by a message, but never beyond its absolute limit, which does not change', async () => {
    const before = await stored(relay.sessions, id);
    await (await relay.send(cookie)).text();
    const after = await stored(relay.sessions, id);
    expect(after?.idleExpiresAt).toBeGreaterThan(before?.idleExpiresAt as number);
    // The relay's idle limit of 30 minutes is longer than the rest of this session.
    expect(after?.idleExpiresAt).toBe(before?.absoluteExpiresAt);
    expect(after?.absoluteExpiresAt).toBe(before?.absoluteExpiresAt);
  });

  test.each([
    ['idle', { idleExpiresAt: Date.now() - 1 }],
    ['absolute', { absoluteExpiresAt: Date.now() - 1 }],
  ])('expires at its %s limit, and no message restores it', async (_which, past) => {
    await change(relay.sessions, id, past);
    const before = await stored(relay.sessions, id);
    expectProblem(await session(), 401, 'unauthenticated');
    expect((await relay.send(cookie)).status).toBe(401);
    expect(await stored(relay.sessions, id)).toEqual(before);
  });
});

describe('the limits', () => {
  test('begin with the given durations, the idle limit never beyond the absolute one', () => {
    expect(startSession(USER, { idleMs: 10, absoluteMs: 30 }, 1000)).toEqual({
      user: USER,
      startedAt: 1000,
      idleExpiresAt: 1010,
      absoluteExpiresAt: 1030,
    });
    expect(startSession(USER, { idleMs: 50, absoluteMs: 30 }, 1000).idleExpiresAt).toBe(1030);
  });

  test('extend the idle limit from the time of use', () => {
    const started = startSession(USER, { idleMs: 10, absoluteMs: 30 }, 1000);
    const limits = { idleMs: 10, absoluteMs: 30 };
    expect([1005, 1020, 1025].map((now) => extendedIdleLimit(started, limits, now))).toEqual([
      1015, 1030, 1030,
    ]);
  });
});
