import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, DELTA, DONE, EVENTS, INIT, problemOf, statusOf, WHOLE } from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  type JoinInstances,
  runsEnded,
  startJoinInstances,
  storedUpTo,
} from '../harness/relay/join-instances.ts';

let all: JoinInstances;
afterEach(() => all.close());

/** Two instances with a client each, which have got the beginning of the same run. */
async function readAtBoth(environment: Record<string, string> = {}) {
  all = await startJoinInstances(2, environment, () => [INIT]);
  const first = all.say(0);
  await first.waitFor('run.init');
  const second = all.say(1);
  await second.waitFor('run.init');
  all.emit(DELTA);
  await second.waitFor('message.delta');
  return { first, second };
}

describeWithRedis('a stream whose log has moved on behind a reader', () => {
  test('does not end as complete for that reader', async () => {
    const { first, second } = await readAtBoth({ JOIN_MAX_BYTES: '262144' });
    all.wires[1]?.cut();
    const large = `data: ${'x'.repeat(100_000)}\n\n`;
    let events = INIT + DELTA;
    for (let n = 0; n < 3; n++) {
      all.emit(large);
      events += large;
      await until(async () => (await storedUpTo(all.redis)) === events.length);
    }
    all.emit(DONE);
    all.finish();
    expect(await endOf(first)).toEqual({ events: events + DONE, code: undefined });
    await runsEnded(all.redis);
    all.wires[1]?.mend();
    expect(await endOf(second)).toEqual({ events: INIT + DELTA, code: 'reader_too_slow' });
  });
});

describeWithRedis('a Redis with little memory left', () => {
  test('stores no more of a run: its own client has all, others are told, and it does not run again', async () => {
    const { first, second } = await readAtBoth();
    const info = String(await all.redis.command('INFO', 'memory'));
    const used = Number(/^used_memory:(\d+)/m.exec(info)?.[1]);
    await all.redis.command('CONFIG', 'SET', 'maxmemory', String(Math.floor(used * 1.15)));
    expect(await endOf(second)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
    const late = all.say(1);
    expect(await problemOf(late)).toMatchObject({ code: 'run_not_kept', retryable: false });
    expect(statusOf(late)).toBe(410);
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(first)).toBe(WHOLE);
    await runsEnded(all.redis);
    for (const at of [0, 1]) expect(await problemOf(all.say(at))).toMatchObject({ code: 'run_over' });
    expect(all.upstream.requests).toHaveLength(1);
  });
});

describeWithRedis('an instance that alone has lost Redis', () => {
  test('keeps its stream; who reads that elsewhere is told that it is lost, and no message is sent twice', async () => {
    all = await startJoinInstances(2, {}, () => EVENTS.slice(0, 3));
    const first = all.say(0);
    await first.waitFor('message.complete');
    const second = all.say(1);
    await second.waitFor('message.complete');
    all.wires[0]?.cut();
    expect(await endOf(second)).toEqual({ events: EVENTS.slice(0, 3).join(''), code: 'answer_lost' });
    all.emit(...EVENTS.slice(3));
    all.finish();
    expect(await bodyOf(first)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
