import { afterEach, expect, test } from '@jest/globals';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { Problem } from '../../src/errors.ts';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  DELTA,
  EVENTS,
  errorEventOf,
  type First,
  INIT,
  KEPT,
  problemOf,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { eventually, until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  type JoinInstances,
  lapse,
  SOON,
  startJoinInstances,
  statesOfNames,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK, type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => {
  all.redis.resume();
  return all.close();
});

const isResumption = (request: RawRequest) => request.all('last-event-id').length > 0;
/** What most streams begin with, and the rest. */
const BEGIN = [INIT, DELTA, KEPT];
const REST = EVENTS.slice(3).join('');

/** Two instances; the service begins each stream with these events, and answers a resumption with the rest. */
async function start(
  environment: Record<string, string> = {},
  begins: readonly string[] | 'no head' = BEGIN,
) {
  const first: First = (request, socket) => {
    if (!isResumption(request)) return begins === 'no head' ? undefined : begins;
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  };
  // Only the second instance is asked while Redis is away, and only then.
  all = await startJoinInstances(2, environment, first, [SOON, { ...SOON, commandTimeoutMs: 1_000 }]);
}

interface Times {
  readonly JOIN_GRACE_MS?: string;
  readonly SHUTDOWN_GRACE_MS?: string;
}

/** A run that the first instance carries, with a client there. */
async function carried(environment: Times = {}) {
  await start({ ...environment });
  const own = all.say(0);
  await own.waitFor('message.complete');
  return own;
}

/** As `carried`, with one more reader at the second instance; `isApart` says whether that one has another session. */
async function readAtBoth({ isApart = false, ...times }: Times & { readonly isApart?: boolean } = {}) {
  const own = await carried(times);
  const cookie = isApart ? await relay(1).signIn() : all.cookie;
  const other = all.sayAs(cookie, 1);
  await other.waitFor('message.complete');
  return { own, other, cookie };
}

const relay = (at: number) => all.relays[at] as TestRelay;
const firstWire = () => all.wires[0] as FaultProxy;
const isOver = () => all.streams[0]?.destroyed === true;
const messages = () => all.upstream.requests.filter((request) => !isResumption(request)).length;
/** The service sends the rest of the first stream. */
const finish = () =>
  void all.streams[0]?.write(Buffer.concat([...EVENTS.slice(3).map(chunk), Buffer.from(LAST_CHUNK)]));
const withBegin = (code: string) => ({ events: BEGIN.join(''), code });

async function signOut(at: number, cookie = all.cookie): Promise<void> {
  const headers = { Cookie: cookie };
  expect((await call(relay(at).port, '/auth/logout', { method: 'POST', headers })).status).toBe(204);
}

describeWithRedis('a run at two instances', () => {
  test('ends with its session if only the pages of that session read it', async () => {
    const { own, other } = await readAtBoth();
    await signOut(0);
    for (const client of [own, other]) expect(await endOf(client)).toMatchObject({ code: 'session_ended' });
    await until(isOver);
  });

  test('goes on for the pages of one session if another one ends, at the other instance', async () => {
    const { own, other, cookie } = await readAtBoth({ isApart: true });
    await signOut(1, cookie);
    expect(await endOf(other)).toEqual(withBegin('session_ended'));
    finish();
    expect(await bodyOf(own)).toBe(WHOLE);
  });

  test('ends with its session if the last page was at another instance than the one that carries it', async () => {
    const { own } = await readAtBoth();
    await all.leave(0, own);
    await signOut(1);
    await until(isOver);
  });

  test('goes on for its grace if its last page was at another instance and ends with another session', async () => {
    const { own, other, cookie } = await readAtBoth({ isApart: true, JOIN_GRACE_MS: '1' });
    await all.leave(0, own);
    await signOut(1, cookie);
    expect(await endOf(other)).toMatchObject({ code: 'session_ended' });
    await until(isOver);
    const line = await relay(0).logLine(({ msg }) => msg === 'run without a client');
    expect(line).toMatchObject({ outcome: 'expired' });
  });

  test('ends with the session of its last page, which has left, also if that ends at another instance', async () => {
    const own = await carried();
    await all.leave(0, own);
    await signOut(1);
    await until(isOver);
    const cookie = await relay(1).signIn();
    // Until its end is stored, who asks is given the run.
    const again = await eventually(async () => {
      const client = all.sayAs(cookie, 1);
      await client.closed;
      expect(statusOf(client)).toBe(410);
      return client;
    });
    expect(await problemOf(again)).toMatchObject({ code: 'run_over' });
    expect(messages()).toBe(1);
  });

  test('is given up though a client at another instance has looked for an event of it in vain', async () => {
    const own = await carried({ JOIN_GRACE_MS: '1' });
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 8']))).toBe(REST);
    await all.leave(0, own);
    await until(isOver);
  });

  test('ends with its session if the page at another instance was closed just before', async () => {
    const { own, other } = await readAtBoth();
    await all.leave(1, other);
    await signOut(0);
    await own.closed;
    await until(isOver);
  });

  test.each([0, 1])(
    'is not given at instance %i to a message whose session has ended, nor bound to it',
    async (at) => {
      await start();
      const old = await relay(at).signIn();
      // All sessions of the user that have begun until now have ended.
      await all.redis.command('ZADD', 'bot-relay:user-sessions:ada', String(Date.now() + MARK_MS), ENDED);
      const fresh = await relay(0).signIn();
      const first = all.sayAs(fresh, 0);
      await first.waitFor('message.complete');
      await all.leave(0, first);
      const refused = all.sayAs(old, at);
      expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
      expect([statusOf(refused), isOver()]).toEqual([401, false]);
      await signOut(0, fresh);
      await until(isOver);
      expect(messages()).toBe(1);
    },
  );
});

// For the others, an instance that does not reach Redis is as one that was killed. `npm run prove` kills processes.
describeWithRedis('a run whose instance alone has lost Redis', () => {
  async function lose(): Promise<void> {
    firstWire().cut();
    await lapse(all.redis);
  }

  test('ends truthfully for all others, goes on for its own client, and does not run again', async () => {
    const { own, other } = await readAtBoth();
    await lose();
    for (const reader of [other, all.say(1), all.byName(1)])
      expect(await endOf(reader)).toEqual(withBegin('answer_lost'));
    // The service has the rest for one who has an id.
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 7']))).toBe(REST);
    expect(messages()).toBe(1);
    finish();
    expect(await bodyOf(own)).toBe(WHOLE);
  });

  test('ends truthfully before its stream begins, too', async () => {
    await start({}, 'no head');
    const asked = all.upstream.nextRequest();
    all.say(0);
    await asked;
    const reader = all.say(1);
    await relay(1).logLine(({ msg }) => msg === 'run joined');
    await lose();
    const lost = { code: 'answer_lost', status: 502, maybeStarted: true };
    for (const one of [reader, all.say(1)]) expect(await errorEventOf(one)).toMatchObject(lost);
    expect(messages()).toBe(1);
  });
});

describeWithRedis('a run that goes on', () => {
  test.each([
    ['is gone', 'stop'],
    ['does not answer', 'pause'],
  ] as const)(
    'while Redis %s is not joined at another instance, which answers 503 and sends nothing',
    async (_how, goAway) => {
      const own = await carried();
      await all.redis[goAway]();
      const another = { customMessageId: 'another-message-01' };
      for (const [refused, retryable] of [
        [all.say(1), 'same message'],
        [all.byName(1), 'new message'],
        [all.say(1, another), 'same message'],
      ] as const) {
        const away = { code: 'session_store_unavailable', status: 503, retryable };
        expect(await problemOf(refused)).toMatchObject(away);
      }
      finish();
      expect(await bodyOf(own)).toBe(WHOLE);
      expect(messages()).toBe(1);
    },
  );

  test('is there as a whole where it is carried, when Redis has lost its data and its user has signed in again', async () => {
    await carried();
    // It claims the name of its run again soon, and on a slow machine before the other one is asked.
    const claims = firstWire().hold('client', '');
    await all.redis.command('FLUSHALL');
    const cookie = await relay(1).signIn();
    // The other instance cannot know of it yet.
    expect(await problemOf(all.byName(1, { cookie }))).toMatchObject({ code: 'run_over' });
    claims.release();
    await until(async () => (await statesOfNames(all.redis)).includes('s'));
    const page = all.byName(0, { cookie });
    await page.waitFor('message.complete');
    finish();
    expect(await bodyOf(page)).toBe(WHOLE);
    expect(messages()).toBe(1);
  });
});

/** The first instance drains; resolves with the end of that. */
async function drain() {
  const closing = relay(0).close();
  await until(() => relay(0).parts.lifecycle.isDraining());
  return { closing };
}

describeWithRedis('the shutdown of an instance whose run is read at another one only', () => {
  async function readElsewhere(times: Times) {
    const { own, other } = await readAtBoth(times);
    await all.leave(0, own);
    return other;
  }

  test('lets the run end by itself, and is over after that', async () => {
    const reader = await readElsewhere({ SHUTDOWN_GRACE_MS: '600000' });
    const { closing } = await drain();
    let isClosed = false;
    void closing.then(() => {
      isClosed = true;
    });
    all.emit('data: while it drains\n\n');
    await reader.waitFor('while it drains');
    expect([isClosed, isOver()]).toEqual([false, false]);
    finish();
    expect(await bodyOf(reader)).toContain('run.done');
    await closing;
    expect(messages()).toBe(1);
  });

  test('is over once its readers have left', async () => {
    const reader = await readElsewhere({ SHUTDOWN_GRACE_MS: '600000', JOIN_GRACE_MS: '1' });
    const { closing } = await drain();
    reader.socket.destroy();
    await closing;
    expect(isOver()).toBe(true);
  });

  test('ends it truthfully at the end of the grace, and who has an id gets the rest from the service', async () => {
    const reader = await readElsewhere({ SHUTDOWN_GRACE_MS: '1' });
    await relay(0).close();
    expect(isOver()).toBe(true);
    for (const one of [reader, all.say(1)]) expect(await endOf(one)).toEqual(withBegin('answer_lost'));
    expect(reader.text()).toContain('The relay was restarted');
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 7']))).toBe(REST);
    expect(messages()).toBe(1);
  });
});

describeWithRedis('a shutdown', () => {
  test('while a message asks whose run it is invites no new message if another instance has sent it', async () => {
    await start();
    await all.say(1).waitFor('message.complete');
    const claim = firstWire().hold('server', ':names');
    const own = all.say(0);
    await claim.begun;
    relay(0).parts.open.endAll(new Problem('draining', 'The relay is shutting down.'));
    claim.release();
    expect(await endOf(own)).toEqual({ events: '', code: 'answer_lost' });
    expect(own.text()).not.toContain('new message');
  });

  test.each([true, false])(
    'leaves the whole answer to a page that is reloaded elsewhere; it had left before: %s',
    async (isBefore) => {
      const own = await carried({ SHUTDOWN_GRACE_MS: '600000' });
      if (isBefore) await all.leave(0, own);
      const { closing } = await drain();
      if (!isBefore) await all.leave(0, own);
      const page = all.byName(1);
      await page.waitFor('message.complete');
      finish();
      expect(await bodyOf(page)).toBe(WHOLE);
      await closing;
      expect(messages()).toBe(1);
    },
  );

  test('is held for no longer than a run goes on without a page', async () => {
    const own = await carried({ SHUTDOWN_GRACE_MS: '600000', JOIN_GRACE_MS: '1' });
    const { closing } = await drain();
    await all.leave(0, own);
    await closing;
    expect(isOver()).toBe(true);
    expect(await problemOf(all.byName(1))).toMatchObject({ code: 'run_over' });
  });
});
