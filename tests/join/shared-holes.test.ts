import { afterEach, expect, jest, test } from '@jest/globals';
import {
  endOf,
  type JoinInstances,
  keysWhen,
  runsEnded,
  startJoinInstances,
} from '../support/join-instances.ts';
import { bodyOf, DELTA, DONE, EVENTS, INIT, problemOf, WHOLE } from '../support/joining.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis } from '../support/redis.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';

jest.setTimeout(30_000);

let all: JoinInstances;
afterEach(() => all.close());

async function keyOfRun(): Promise<string> {
  const isRun = (key: string) => key.includes(':run:');
  return (await keysWhen(all.redis, (keys) => keys.some(isRun))).find(isRun) ?? '';
}

describeWithRedis('a stream whose log was closed behind a reader', () => {
  test('does not end as complete for that reader', async () => {
    all = await startJoinInstances(2, { JOIN_MAX_BYTES: '65536', MAX_HELD_EVENT_BYTES: '200000' }, () => [
      INIT,
    ]);
    const first = all.say(0);
    await first.waitFor('run.init');
    const second = all.say(1);
    await second.waitFor('run.init');
    all.emit(DELTA);
    await second.waitFor('message.delta');
    all.wires[1]?.cut();
    const large = `data: ${'x'.repeat(60_000)}\n\n`;
    all.emit(large);
    const run = await keyOfRun();
    for (let closed: unknown; closed !== '1'; ) closed = await all.redis.command('HGET', run, 'closed');
    all.emit(DONE);
    all.finish();
    expect(await endOf(first)).toEqual({ events: INIT + DELTA + large + DONE, code: undefined });
    await runsEnded(all.redis);
    all.wires[1]?.mend();
    expect(await endOf(second)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
  });
});

describeWithRedis('an instance that alone has lost Redis', () => {
  test('keeps its stream while another goes on with the run, and no message is sent twice', async () => {
    const isResumption = ({ all }: RawRequest) => all('last-event-id').length > 0;
    all = await startJoinInstances(2, {}, (request, socket) => {
      if (!isResumption(request)) return EVENTS.slice(0, 3);
      socket.write(wholeStream(...EVENTS.slice(3)));
      return undefined;
    });
    const first = all.say(0);
    await first.waitFor('message.complete');
    const second = all.say(1);
    await second.waitFor('message.complete');
    all.wires[0]?.cut();
    expect(await bodyOf(second)).toBe(WHOLE);
    all.streams[0]?.write(Buffer.concat([...EVENTS.slice(3).map(chunk), Buffer.from(LAST_CHUNK)]));
    expect(await bodyOf(first)).toBe(WHOLE);
    expect(all.upstream.requests.map(isResumption)).toEqual([false, true]);
  });

  test('ends a stream that had only its head when another took the run, with an error event', async () => {
    all = await startJoinInstances(2, {}, () => undefined);
    const first = all.say(0);
    await until(() => all.streams.length === 1);
    const second = all.say(1);
    const run = await keyOfRun();
    while (!(await all.redis.command('HGET', run, 'followed'))) await sleep(20);
    all.wires[0]?.cut();
    all.streams[0]?.write(STREAM_HEAD);
    await first.waitFor('200 OK');
    expect(await problemOf(second)).toMatchObject({ code: 'answer_lost' });
    all.wires[0]?.mend();
    expect(await endOf(first)).toEqual({ events: '', code: 'answer_lost' });
    expect(all.upstream.requests).toHaveLength(1);
  });
});
