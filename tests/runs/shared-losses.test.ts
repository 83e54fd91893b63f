import { afterEach, expect, test } from '@jest/globals';
import {
  bodyOf,
  DELTA,
  DONE,
  EVENTS,
  errorEventOf,
  INIT,
  KEPT,
  problemOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  endOf,
  type JoinInstances,
  startJoinInstances,
  statesOfNames,
} from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';
import { chunk, LAST_CHUNK, type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

const isResumption = ({ all }: RawRequest) => all('last-event-id').length > 0;

let all: JoinInstances;
afterEach(() => {
  all.redis.resume();
  return all.close();
});

/** Two instances; the service begins each stream with these events, and answers a resumption with the rest. */
async function start(begins?: readonly string[]): Promise<void> {
  all = await startJoinInstances(2, {}, (request, socket) => {
    if (!isResumption(request)) return begins;
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  });
}

const firstWire = () => all.wires[0] as FaultProxy;
const messages = () => all.upstream.requests.filter((request) => !isResumption(request));

// For the others, an instance that does not reach Redis is as one that was killed. `npm run prove` kills processes.
describeWithRedis('a run whose instance alone has lost Redis', () => {
  test('ends truthfully for all others, goes on for its own client, and does not run again', async () => {
    const begins = [INIT, DELTA, KEPT];
    await start(begins);
    const own = all.say(0);
    await own.waitFor('message.complete');
    const readers = [all.say(1), all.say(1)];
    for (const reader of readers) await reader.waitFor('message.complete');
    firstWire().cut();
    const lost = { events: begins.join(''), code: 'answer_lost' };
    for (const reader of readers) expect(await endOf(reader)).toEqual(lost);
    for (const again of [all.say(1), all.byName(1)]) expect(await endOf(again)).toEqual(lost);
    // The service has the rest for one who has an id.
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 7']))).toBe(EVENTS.slice(3).join(''));
    expect(messages()).toHaveLength(1);
    all.streams[0]?.write(Buffer.concat([...EVENTS.slice(3).map(chunk), Buffer.from(LAST_CHUNK)]));
    expect(await bodyOf(own)).toBe(WHOLE);
  });

  test('ends truthfully before its stream begins, too', async () => {
    await start();
    const asked = all.upstream.nextRequest();
    all.say(0);
    await asked;
    const reader = all.say(1);
    await all.relays[1]?.logLine(({ msg }) => msg === 'run joined');
    firstWire().cut();
    const lost = { code: 'answer_lost', status: 502, maybeStarted: true };
    expect(await errorEventOf(reader)).toMatchObject(lost);
    expect(await errorEventOf(all.say(1))).toMatchObject(lost);
    expect(messages()).toHaveLength(1);
  });
});

describeWithRedis.each([
  ['is gone', 'stop'],
  ['does not answer', 'pause'],
] as const)('a run that goes on while Redis %s', (_how, goAway) => {
  test('is not joined at another instance, which answers 503 and sends nothing, and goes on for its own client', async () => {
    // Only the second instance is asked while Redis is away, and only then.
    all = await startJoinInstances(2, {}, () => [INIT, DELTA], [{}, { commandTimeoutMs: 200 }]);
    const own = all.say(0);
    await own.waitFor('message.delta');
    await all.redis[goAway]();
    const another = { customMessageId: 'another-message-01' };
    for (const [refused, retryable] of [
      [all.say(1), 'same message'],
      [all.byName(1), 'new message'],
      [all.say(1, another), 'same message'],
    ] as const) {
      expect(await problemOf(refused)).toMatchObject({
        ...{ code: 'session_store_unavailable', status: 503, retryable },
      });
    }
    all.emit(DELTA, DONE);
    all.finish();
    expect(await bodyOf(own)).toBe(INIT + DELTA + DELTA + DONE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});

describeWithRedis('a page that asks for its run when Redis has just lost its data', () => {
  test('gets all of it at the instance that carries it, once its user has signed in again', async () => {
    await start([INIT, DELTA]);
    await all.say(0).waitFor('message.delta');
    // It claims the name of its run again soon, and on a slow machine before the other one is asked.
    const claims = firstWire().hold('client', '');
    await all.redis.command('FLUSHALL');
    const cookie = await (all.relays[1] as TestRelay).signIn();
    // The other instance cannot know of it yet.
    expect(await problemOf(all.byName(1, { cookie }))).toMatchObject({ code: 'run_over' });
    claims.release();
    await until(async () => (await statesOfNames(all.redis)).includes('s'));
    const page = all.byName(0, { cookie });
    await page.waitFor('message.delta');
    all.emit(...EVENTS.slice(2));
    all.finish();
    expect(await bodyOf(page)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
