import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { startSession } from '../../src/authenticate/sessions/session.ts';
import type { RemovalListener } from '../../src/authenticate/sessions/session-store.ts';
import { watchSessions } from '../../src/authenticate/sessions/session-watch.ts';

const LIMITS = { idleMs: 4_000, absoluteMs: 60_000 };

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** A session in a store, and its watch. */
async function start() {
  const sessions = memorySessionStore();
  const key = 'the-key';
  const session = { ...startSession({ id: 'ada', name: 'Ada' }, LIMITS, Date.now()), key };
  await sessions.set(key, session);
  const endMessages = jest.fn();
  return { sessions, session, endMessages, watch: watchSessions({ sessions, limits: LIMITS, endMessages }) };
}

const passed = (ms: number) => jest.advanceTimersByTimeAsync(ms);

test('streams that do not use a session and come and go do not keep a message from extending it', async () => {
  const { session, endMessages, watch } = await start();
  let bytes = 0;
  watch.add({ session, bytes: () => bytes });
  for (let n = 0; n < 100; n += 1) {
    bytes += 1;
    const leave = watch.add({ session, bytes: () => 0 });
    await passed(100);
    leave();
  }
  expect(endMessages).not.toHaveBeenCalled();
});

test('a stream that does not use its session ends with it', async () => {
  const { session, endMessages, watch } = await start();
  watch.add({ session, bytes: () => 0 });
  await passed(LIMITS.idleMs - 600);
  expect(endMessages).not.toHaveBeenCalled();
  await passed(1_200);
  expect(endMessages).toHaveBeenCalledWith('the-key', expect.objectContaining({ code: 'session_ended' }));
});

test('a message whose session was read before removals may have been missed has it asked for again', async () => {
  const { sessions, session, endMessages } = await start();
  const listen = jest.fn<(listener: RemovalListener) => void>();
  const listened = { ...sessions, listen };
  const watch = watchSessions({ sessions: listened, limits: LIMITS, endMessages });
  const missedRemovals = watch.missedRemovals();
  await sessions.remove(session.key);
  listen.mock.calls[0]?.[0].missed();
  watch.add({ session, missedRemovals, bytes: () => 0 });
  await passed(600);
  expect(endMessages).toHaveBeenCalledWith('the-key', expect.objectContaining({ code: 'session_ended' }));
});

test('a session that was extended is asked for later', async () => {
  const { sessions, session, endMessages, watch } = await start();
  const state = jest.spyOn(sessions, 'state');
  watch.add({ session, bytes: () => 0 });
  // Another message of the session has extended it.
  const extended = { ...session, idleExpiresAt: session.idleExpiresAt + 5_000 };
  watch.add({ session: extended, bytes: () => 0 });
  await passed(LIMITS.idleMs + 4_000);
  expect(state).not.toHaveBeenCalled();
  expect(endMessages).not.toHaveBeenCalled();
});

test('a session that its store still has lives on, if the clock of this instance is fast', async () => {
  const { session, sessions, endMessages, watch } = await start();
  const state = jest.spyOn(sessions, 'state').mockResolvedValue(session.idleExpiresAt);
  watch.add({ session, bytes: () => 0 });
  await passed(LIMITS.idleMs + 5_000);
  expect(endMessages).not.toHaveBeenCalled();
  // It is not asked for at each tick.
  expect(state.mock.calls.length).toBeLessThanOrEqual(6);
  state.mockResolvedValue('missing');
  await passed(2_000);
  expect(endMessages).toHaveBeenCalledWith('the-key', expect.objectContaining({ code: 'session_ended' }));
});

test('the timer of all sessions ends when none has a message, and begins again with the next', async () => {
  const { session, watch } = await start();
  const others = jest.getTimerCount();
  const follow = () => watch.add({ session, bytes: () => 0 });
  const leaves = [follow(), follow()];
  expect(jest.getTimerCount()).toBe(others + 1);
  for (const leave of leaves) leave();
  await passed(600);
  expect(jest.getTimerCount()).toBe(others);
  follow();
  expect(jest.getTimerCount()).toBe(others + 1);
});
