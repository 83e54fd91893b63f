import { afterAll, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { INIT, KEPT, problemOf, statusOf } from '../harness/clients/joining.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { endOf, type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

const opened: JoinInstances[] = [];
afterAll(() => Promise.all(opened.map((all) => all.close())));

/** Longer than a test may take. */
const LONG_MS = '60000';
/** Two instances of a case of its own, since each waits for seconds. */
async function start(JOIN_GRACE_MS: string) {
  const all = await startJoinInstances(2, { JOIN_GRACE_MS }, () => [INIT, KEPT]);
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
async function readAtBoth({ isApart = false, graceMs = LONG_MS } = {}) {
  const started = await start(graceMs);
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

  test.concurrent('goes on for its grace if its last page was at another instance and ends with another session', async () => {
    const { leaveOwn, other, cookie, at, signOut, isEnded } = await readAtBoth({
      isApart: true,
      graceMs: '1',
    });
    await leaveOwn();
    await signOut(1, cookie);
    expect(await endOf(other)).toMatchObject({ code: 'session_ended' });
    await until(isEnded);
    expect(await at(0).logLine(({ msg }) => msg === 'run without a client')).toMatchObject({
      outcome: 'expired',
    });
  });

  test.concurrent('ends with the session of its last page, which has left, also if that ends at another instance', async () => {
    const { all, at, signOut, isEnded } = await start(LONG_MS);
    const own = all.say(0);
    await own.waitFor('message.complete');
    own.socket.destroy();
    await until(() => at(0).open.count() === 0);
    await signOut(1);
    await until(isEnded);
    const cookie = await at(1).signIn();
    // Until its end is stored, who asks is given the run.
    const again = await eventually(async () => {
      const client = all.sayAs(cookie, 1);
      await client.closed;
      expect(statusOf(client)).toBe(410);
      return client;
    });
    expect(await problemOf(again)).toMatchObject({ code: 'run_over' });
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.concurrent('ends with its session if the page at another instance was closed just before', async () => {
    const { own, other, at, signOut, isEnded } = await readAtBoth();
    other.socket.destroy();
    await until(() => at(1).open.count() === 0);
    await signOut(0);
    await own.closed;
    await until(isEnded);
  });
});
