import { afterEach, expect, jest, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { endOf, type JoinInstances, startJoinInstances } from '../support/join-instances.ts';
import { EVENTS, INIT, KEPT } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';

jest.setTimeout(40_000);

let all: JoinInstances;
afterEach(() => all.close());

/** Longer than a test may take. */
const environment = { JOIN_GRACE_MS: '60000' };
/** Longer than a run counts as read elsewhere after the last look at it. */
const UNREAD_MS = 6_000;

const at = (n: number) => all.relays[n] as TestRelay;

async function signOut(n: number, cookie = all.cookie) {
  const answer = await call(at(n).port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
  expect(answer.status).toBe(204);
}

/** A run that the first instance carries, with a client there and one at the second instance. */
async function readAtBoth(second?: () => Promise<string>) {
  all = await startJoinInstances(2, environment, () => [INIT, KEPT]);
  const own = all.say(0);
  await own.waitFor('message.complete');
  const cookie = (await second?.()) ?? all.cookie;
  const other = all.sayAs(cookie, 1);
  await other.waitFor('message.complete');
  return {
    ...{ own, other, cookie },
    /** The client of the first instance closes its page, and that instance keeps the run for the other one. */
    async leaveOwn() {
      own.socket.destroy();
      await until(() => at(0).open.count() === 0);
      // The run may have been without a client for a moment.
      await sleep(1_000);
    },
  };
}

const isEnded = () => all.streams[0]?.destroyed === true;

describeWithRedis('the end of a session ends a run', () => {
  test('that only its pages at two instances read', async () => {
    const { own, other } = await readAtBoth();
    await signOut(0);
    for (const client of [own, other]) expect(await endOf(client)).toMatchObject({ code: 'session_ended' });
    await until(isEnded);
  });

  test('that its page has read at another instance than the one that carries it', async () => {
    const { leaveOwn } = await readAtBoth();
    await leaveOwn();
    await signOut(1);
    await until(isEnded);
  });

  test('whose last page was at another instance, though another session has read it before', async () => {
    const { leaveOwn, cookie } = await readAtBoth(() => at(1).signIn());
    await leaveOwn();
    await signOut(1, cookie);
    await until(isEnded);
  });

  test('whose page at another instance was closed just before', async () => {
    const { own, other } = await readAtBoth();
    other.socket.destroy();
    await until(() => at(1).open.count() === 0);
    await signOut(0);
    await own.closed;
    await until(isEnded);
  });
});

describeWithRedis('the end of a session does not end a run', () => {
  test('that another session of the user has left at another instance after that', async () => {
    const { own, other, cookie } = await readAtBoth(() => at(1).signIn());
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

  test('that another session of the user reads at a third instance', async () => {
    const { own, other } = await readAtBoth();
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
});

describeWithRedis('a run that was taken over while somebody looked for an event', () => {
  test('is given up if nobody reads it', async () => {
    all = await startJoinInstances(2, environment, (request) =>
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
    const resumption = all.upstream.requests.findIndex((request) => request.all('last-event-id')[0] === '7');
    expect(resumption).toBeGreaterThan(0);
    await until(() => all.streams[resumption]?.destroyed === true);
    expect(looking.socket.destroyed).toBe(false);
  });
});
