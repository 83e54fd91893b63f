import { afterEach, expect, test } from '@jest/globals';
import { bodyOf, EVENTS, INIT, problemOf, statusOf, WHOLE } from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances, statesOfNames } from '../harness/relay/join-instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

let all: JoinInstances;
afterEach(() => all.close());

const OTHER = { text: 'other', customMessageId: 'another-message-01' };

/** Sends the message to the first instance. It is claimed, and waits for its slot. */
async function claimed(): Promise<RawClient> {
  const pacing = { RATE_LIMIT: '1', RATE_WINDOW_MS: '5000', RATE_MAX_WAIT_MS: '20000' };
  all = await startJoinInstances(2, pacing, () => [INIT]);
  await all.say(0, OTHER).waitFor('run.init');
  const client = all.say(0);
  await until(async () => (await statesOfNames(all.redis)).includes('c'));
  return client;
}

/** How often the service has got the message. */
const sent = () => all.upstream.requests.filter(({ body }) => String(body).includes('"text":"hi"')).length;
const firstWire = () => all.wires[0] as FaultProxy;

describeWithRedis('a message that is claimed and waits for its slot', () => {
  test('is not sent if Redis is away then, and can be sent once it is back', async () => {
    const client = await claimed();
    firstWire().cut();
    expect(await problemOf(client)).toMatchObject({ code: 'session_store_unavailable' });
    expect(statusOf(client)).toBe(503);
    expect(sent()).toBe(0);
    firstWire().mend();
    await all.say(1).waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('is sent once if Redis has lost all its data', async () => {
    const client = await claimed();
    await all.redis.command('FLUSHALL');
    await client.waitFor('run.init');
    const cookie = await (all.relays[1] as TestRelay).signIn();
    const joined = all.sayAs(cookie, 1);
    await joined.waitFor('run.init');
    expect(sent()).toBe(1);
  });

  test('is not sent by an instance that was held up, if another one has it then', async () => {
    const client = await claimed();
    const held = firstWire().hold('client', '');
    const other = all.say(1);
    await other.waitFor('run.init');
    held.release();
    await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const one of [client, other]) expect(await bodyOf(one)).toBe(WHOLE);
    expect(sent()).toBe(1);
  });
});
