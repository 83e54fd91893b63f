import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, DELTA, EVENTS, errorEventOf, INIT, KEPT } from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { endOf, type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';
import { type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

const isResumption = ({ all }: RawRequest) => all('last-event-id').length > 0;

let all: JoinInstances;
afterEach(() => all.close());

/** Two instances; the service begins each stream with these events, and answers a resumption with the rest. */
async function start(begins?: readonly string[]): Promise<void> {
  all = await startJoinInstances(2, {}, (request, socket) => {
    if (!isResumption(request)) return begins;
    socket.write(wholeStream(...EVENTS.slice(3)));
    return undefined;
  });
}

/** The first instance does not reach the others any more: for them, it is as if it had been killed. */
const loseFirst = () => all.wires[0]?.cut();

const messages = () => all.upstream.requests.filter((request) => !isResumption(request));

// `npm run prove` kills processes.
describeWithRedis('a run whose instance is lost', () => {
  test('ends truthfully for all who read it, if it had no id, and does not run again', async () => {
    await start([INIT, DELTA]);
    await all.say(0).waitFor('message.delta');
    const readers = [all.say(1), all.say(1)];
    for (const reader of readers) await reader.waitFor('message.delta');
    loseFirst();
    for (const reader of readers) {
      expect(await endOf(reader)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
    }
    for (const again of [all.say(1), all.byName(1)]) {
      expect(await endOf(again)).toEqual({ events: INIT + DELTA, code: 'answer_lost' });
    }
    expect(messages()).toHaveLength(1);
  });

  test('ends truthfully before its stream begins, too', async () => {
    await start();
    const asked = all.upstream.nextRequest();
    all.say(0);
    await asked;
    const reader = all.say(1);
    await all.relays[1]?.logLine(({ msg }) => msg === 'run joined');
    loseFirst();
    const lost = { code: 'answer_lost', status: 502, maybeStarted: true };
    expect(await errorEventOf(reader)).toMatchObject(lost);
    expect(await errorEventOf(all.say(1))).toMatchObject(lost);
    expect(messages()).toHaveLength(1);
  });

  test('goes on at the service for one who asks with the last id, from after that', async () => {
    await start([INIT, DELTA, KEPT]);
    await all.say(0).waitFor('message.complete');
    const reader = all.say(1);
    await reader.waitFor('message.complete');
    loseFirst();
    expect(await endOf(reader)).toEqual({ events: INIT + DELTA + KEPT, code: 'answer_lost' });
    expect(await bodyOf(all.say(1, {}, ['Last-Event-ID: 7']))).toBe(EVENTS.slice(3).join(''));
    expect(messages()).toHaveLength(1);
  });
});
