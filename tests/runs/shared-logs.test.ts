import { afterAll, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { bodyOf, DELTA, DONE, EVENTS, INIT, KEPT, problemOf, WHOLE } from '../harness/clients/joining.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  type JoinInstances,
  startJoinInstances,
  storedUpTo,
} from '../harness/relay/join-instances.ts';
import { OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';

// Each case has its own instances and Redis, so that the cases can wait side by side.
const open: JoinInstances[] = [];
afterAll(() => Promise.all(open.map((all) => all.close())));

async function start(count = 2, environment: Record<string, string> = {}): Promise<JoinInstances> {
  const all = await startJoinInstances(count, { JOIN_MAX_BYTES: '65536', ...environment }, () => [INIT]);
  open.push(all);
  return all;
}

describeWithRedis('the log of a run', () => {
  test.concurrent('keeps a run open that only others read, until they leave', async () => {
    const all = await start(2, { JOIN_GRACE_MS: '1' });
    const first = all.say(0);
    await first.waitFor('run.init');
    const second = all.say(1);
    await second.waitFor('run.init');
    first.socket.destroy();
    await until(() => (all.relays[0] as TestRelay).open.count() === 0);
    all.emit(DELTA);
    await second.waitFor('message.delta');
    expect(all.streams[0]?.destroyed).toBe(false);
    second.socket.destroy();
    await until(() => all.streams[0]?.destroyed === true);
    const left = all.relays[0]?.logs.filter(({ msg }) => msg === 'run without a client');
    expect(left?.at(-1)).toMatchObject({ outcome: 'expired' });
  });

  test.concurrent('gives 50 readers at three instances the same bytes of one request', async () => {
    const all = await start(3);
    const clients = Array.from({ length: 50 }, (_, n) => all.say(n % 3));
    for (const client of clients) await client.waitFor('run.init');
    for (const event of EVENTS.slice(1)) all.emit(event);
    all.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.concurrent('goes on after each of ten reconnections, in turn at two instances', async () => {
    const all = await start();
    let client = all.say(0);
    await client.waitFor('run.init');
    for (let n = 1; n <= 10; n++) {
      const kept = `id: ${n}\n${DELTA}`;
      all.emit(kept, DELTA);
      await until(() => dechunk(client.text()).body.endsWith(kept + DELTA));
      client.socket.destroy();
      client = all.say(n % 2, {}, [`Last-Event-ID: ${n}`]);
      await client.waitFor(DELTA);
      expect(client.text()).not.toContain(kept);
    }
    all.emit(DONE);
    all.finish();
    expect(await bodyOf(client)).toBe(DELTA + DONE);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.concurrent('is read by two tabs at two instances, one of which signs out', async () => {
    const all = await start();
    const relay = all.relays[1] as TestRelay;
    const cookie = await relay.signIn();
    const tabs = [all.say(0), all.sayAs(cookie, 1)] as const;
    for (const tab of tabs) await tab.waitFor('run.init');
    await call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    expect(await endOf(tabs[1])).toEqual({ events: INIT, code: 'session_ended' });
    all.emit(...EVENTS.slice(1));
    all.finish();
    expect(await bodyOf(tabs[0])).toBe(WHOLE);
  });

  test.concurrent("is not another user's: who guesses an id joins nothing", async () => {
    const all = await start();
    const cookie = await (all.relays[1] as TestRelay).signIn(OTHER_USER);
    await all.say(0).waitFor('run.init');
    await all.sayAs(cookie, 1).waitFor('run.init');
    expect(all.upstream.requests).toHaveLength(2);
  });

  test.concurrent('has no hole: a stream whose beginning is gone is refused, and so is one that is not kept', async () => {
    const all = await start(2, { JOIN_MAX_BYTES: '262144' });
    const first = all.say(0);
    await first.waitFor('run.init');
    const large = (n: number) => `id: ${n}\ndata: {"eventType":"x","n":${n},"x":"${'x'.repeat(16_000)}"}\n\n`;
    let sent = INIT.length;
    for (let n = 1; n <= 40; n++) {
      all.emit(large(n));
      sent += large(n).length;
      // It is stored once a second, and what is forgotten before that closes the log.
      if (n % 4 === 0) await until(async () => (await storedUpTo(all.redis)) === sent);
    }
    await first.waitFor('"n":40,');
    expect(await problemOf(all.say(1))).toMatchObject({ code: 'run_not_kept', retryable: false });
    expect(await problemOf(all.byName(1))).toMatchObject({ code: 'run_not_kept' });
    const resumed = all.say(1, {}, ['Last-Event-ID: 39']);
    await resumed.waitFor('"n":40,');
    all.emit(DONE);
    all.finish();
    expect(await bodyOf(resumed)).toBe(large(40) + DONE);
    expect(await problemOf(all.say(1))).toMatchObject({ code: 'run_over' });
    expect(all.upstream.requests).toHaveLength(1);
  });

  test.concurrent('holds a service back whose only reader is slow, and at another instance', async () => {
    const all = await start();
    const first = all.say(0);
    await first.waitFor('run.init');
    const slow = all.say(1);
    await slow.waitFor('run.init');
    all.emit(DELTA);
    await slow.waitFor('message.delta');
    all.emit(KEPT);
    await slow.waitFor('message.complete');
    first.socket.destroy();
    await until(() => (all.relays[0] as TestRelay).open.count() === 0);
    const large = `data: ${'x'.repeat(8_000)}\n\n`;
    const count = 150;
    for (let n = 0; n < count; n++) all.emit(large);
    all.emit(DONE);
    all.finish();
    const { events, code } = await endOf(slow);
    expect(code).toBeUndefined();
    expect(events === INIT + DELTA + KEPT + large.repeat(count) + DONE).toBe(true);
  });

  test.concurrent('that expires under a reader is a truthful end', async () => {
    const all = await start();
    const first = all.say(0);
    await first.waitFor('run.init');
    const second = all.say(1);
    await second.waitFor('run.init');
    await all.redis.command('FLUSHALL');
    const { events, code } = await endOf(second);
    expect([events, code]).toEqual([INIT, 'answer_lost']);
    all.emit(...EVENTS.slice(1));
    all.finish();
    expect(await bodyOf(first)).toBe(WHOLE);
  });
});
