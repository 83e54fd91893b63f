import { afterAll, expect, jest, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { endOf, type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { EVENTS, INIT, KEPT } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';

jest.setTimeout(40_000);

const opened: JoinInstances[] = [];
afterAll(() => Promise.all(opened.map((all) => all.close())));

/** Longer than a test may take. */
const environment = { JOIN_GRACE_MS: '60000' };
/** Longer than a run counts as read elsewhere after the last look at it. */
const UNREAD_MS = 6_000;

/** Two instances of a case of its own, since each waits for seconds. */
async function start(first: Parameters<typeof startJoinInstances>[2]) {
  const all = await startJoinInstances(2, environment, first);
  opened.push(all);
  return {
    all,
    at: (n: number) => all.relays[n] as TestRelay,
    async signOut(n: number, cookie = all.cookie) {
      const { port } = all.relays[n] as TestRelay;
      const answer = await call(port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
      expect(answer.status).toBe(204);
    },
    isEnded: () => all.streams[0]?.destroyed === true,
  };
}

/**
 * A run that the first instance carries, with a client there and one at the second instance; `isApart` says whether
 * that one has another session.
 */
async function readAtBoth({ isApart = false } = {}) {
  const started = await start(() => [INIT, KEPT]);
  const { all, at } = started;
  const own = all.say(0);
  await own.waitFor('message.complete');
  const cookie = isApart ? await at(1).signIn() : all.cookie;
  const other = all.sayAs(cookie, 1);
  await other.waitFor('message.complete');
  return {
    ...{ ...started, own, other, cookie },
    /** The client of the first instance closes its page, and that instance keeps the run for the other one. */
    async leaveOwn() {
      own.socket.destroy();
      await until(() => at(0).open.count() === 0);
      // The run may have been without a client for a moment.
      await sleep(1_000);
    },
  };
}

// In one group, since Jest runs only the tests of one group beside each other.
describeWithRedis('a run', () => {
  test.concurrent('ends with its session if only the pages of that session, at two instances, read it', async () => {
    const { own, other, signOut, isEnded } = await readAtBoth();
    await signOut(0);
    for (const client of [own, other]) expect(await endOf(client)).toMatchObject({ code: 'session_ended' });
    await until(isEnded);
  });

  test.concurrent('ends with its session if the last page was at another instance than the one that carries it', async () => {
    const { leaveOwn, signOut, isEnded } = await readAtBoth();
    await leaveOwn();
    await signOut(1);
    await until(isEnded);
  });

  test.concurrent('ends with the session of its last page, at another instance, though another session has read it before', async () => {
    const { leaveOwn, cookie, signOut, isEnded } = await readAtBoth({ isApart: true });
    await leaveOwn();
    await signOut(1, cookie);
    await until(isEnded);
  });

  test.concurrent('ends with its session if the page at another instance was closed just before', async () => {
    const { own, other, at, signOut, isEnded } = await readAtBoth();
    other.socket.destroy();
    await until(() => at(1).open.count() === 0);
    await signOut(0);
    await own.closed;
    await until(isEnded);
  });

  test.concurrent('goes on after the end of a session if another session of the user has left it later, at another instance', async () => {
    const { all, own, other, cookie, signOut, isEnded } = await readAtBoth({ isApart: true });
    await signOut(0);
    await own.closed;
    await sleep(2_500);
    other.socket.destroy();
    await sleep(UNREAD_MS);
    expect(isEnded()).toBe(false);
    const back = all.sayAs(cookie, 0);
    await back.waitFor('message.complete');
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.concurrent('goes on after the end of a session if another session of the user reads it at another instance', async () => {
    const { all, own, other, at, signOut, isEnded } = await readAtBoth();
    own.socket.destroy();
    const cookie = await at(0).signIn();
    const third = all.sayAs(cookie, 0);
    await third.waitFor('message.complete');
    await signOut(1);
    await other.closed;
    await sleep(UNREAD_MS);
    third.socket.destroy();
    await sleep(1_000);
    expect(isEnded()).toBe(false);
  });

  test.concurrent('is given up if nobody reads it, also after it was taken over while somebody looked for an event', async () => {
    const { all, at } = await start((request) =>
      request.all('last-event-id').length > 0 ? [EVENTS[3] as string] : [INIT, KEPT],
    );
    const own = all.say(0);
    await own.waitFor('message.complete');
    await sleep(300);
    all.wires[0]?.cut();
    own.socket.destroy();
    const looking = all.say(1, {}, ['Last-Event-ID: unknown']);
    await looking.waitFor('"n":4');
    await at(1).logLine(({ outcome }) => outcome === 'taken_over');
    const place = () => all.upstream.requests.findIndex((request) => request.all('last-event-id')[0] === '7');
    await until(() => place() > 0);
    const resumption = place();
    await until(() => all.streams[resumption]?.destroyed === true);
    expect(looking.socket.destroyed).toBe(false);
  });
});
