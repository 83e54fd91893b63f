import { afterAll, afterEach, expect, jest, test } from '@jest/globals';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  DELTA,
  DONE,
  INIT,
  KEPT,
  messageBody,
  problemOf,
  statusOf,
} from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
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
      await all.leave(0, own);
    },
  };
}

// In one group, since Jest runs only the tests of one group beside each other.
describeWithRedis('a run', () => {
  test('ends with its session if only the pages of that session, at two instances, read it', async () => {
    const { own, other, signOut, isEnded } = await readAtBoth();
    await signOut(0);
    for (const client of [own, other]) expect(await endOf(client)).toMatchObject({ code: 'session_ended' });
    await until(isEnded);
  });

  test('goes on for the pages of one session if another one ends, at the other instance', async () => {
    const { own, other, cookie, all, signOut } = await readAtBoth({ isApart: true });
    await signOut(1, cookie);
    expect(await endOf(other)).toEqual({ events: INIT + KEPT, code: 'session_ended' });
    all.emit(DONE);
    all.finish();
    expect(await bodyOf(own)).toBe(INIT + KEPT + DONE);
  });

  test('ends with its session if the last page was at another instance than the one that carries it', async () => {
    const { leaveOwn, signOut, isEnded } = await readAtBoth();
    await leaveOwn();
    await signOut(1);
    await until(isEnded);
  });

  test('goes on for its grace if its last page was at another instance and ends with another session', async () => {
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

  test('ends with the session of its last page, which has left, also if that ends at another instance', async () => {
    const { all, at, signOut, isEnded } = await start(LONG_MS);
    const own = all.say(0);
    await own.waitFor('message.complete');
    await all.leave(0, own);
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

  test('ends with its session if the page at another instance was closed just before', async () => {
    const { all, own, other, signOut, isEnded } = await readAtBoth();
    await all.leave(1, other);
    await signOut(0);
    await own.closed;
    await until(isEnded);
  });
});

let all: JoinInstances;
const relay = (at: number) => all.relays[at] as TestRelay;
const hasBegun = (client: RawClient) => until(() => client.text().includes('message.delta'));

const isOver = () => all.streams[0]?.destroyed === true || all.streams[0]?.readableEnded === true;

/** Marks all sessions of the user that have begun until now as ended. */
async function mark(): Promise<void> {
  await all.redis.command('ZADD', 'bot-relay:user-sessions:ada', String(Date.now() + MARK_MS), ENDED);
}

describeWithRedis.each([0, 1])('a message that would join a run at instance %i', (at) => {
  afterEach(() => all.close());

  test('is refused by its status if its session has ended', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    const first = all.say(0);
    await hasBegun(first);
    const other = await relay(at).signIn();
    await mark();
    const refused = all.sayAs(other, at);
    expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
    expect(statusOf(refused)).toBe(401);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('does not take the run over if its session has ended: the run ends with the session of who left it', async () => {
    all = await startJoinInstances(2, { JOIN_GRACE_MS: '600000' }, () => [INIT, DELTA]);
    const old = await relay(at).signIn();
    await mark();
    const fresh = await relay(0).signIn();
    const first = all.sayAs(fresh, 0);
    await hasBegun(first);
    first.socket.destroy();
    await relay(0).logLine(({ bot, status }) => bot !== undefined && status === 200);
    const refused = all.sayAs(old, at);
    expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
    expect(isOver()).toBe(false);
    await call(relay(0).port, '/auth/logout', { method: 'POST', headers: { Cookie: fresh } });
    await until(isOver);
  });

  test('does not end the oldest of 64 readers if its session has ended', async () => {
    all = await startJoinInstances(2, { MAX_STREAMS_PER_USER: '100', CLIENT_LIMIT_PER_SESSION: '0' }, () => [
      INIT,
      DELTA,
    ]);
    const readers = [all.say(at)];
    await hasBegun(readers[0] as RawClient);
    for (let n = 1; n < 64; n++) readers.push(all.say(at));
    for (const reader of readers) await hasBegun(reader);
    jest.spyOn(relay(at).sessions, 'extend').mockResolvedValueOnce('removed');
    const text = rawMessage({ cookie: all.cookie, body: messageBody(), headers: ['Connection: close'] });
    expect(await problemOf(rawClient(relay(at).port, text))).toMatchObject({ code: 'unauthenticated' });
    all.emit(DELTA);
    for (const reader of readers) await until(() => reader.text().split('message.delta').length === 3);
  });
});
