import { afterEach, describe, expect, test } from '@jest/globals';
import {
  bodyOf,
  DELTA,
  EVENTS,
  INIT,
  type JoinPair,
  startJoinPair,
  WHOLE,
} from '../harness/clients/joining.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, runsEnded, startJoinInstances } from '../harness/relay/join-instances.ts';
import { OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';

const NO_ID = { customMessageId: undefined };

describe('a message without an id, posted again', () => {
  let pair: JoinPair;
  afterEach(() => pair.close());

  /** Closes the connection of a client; resolves when the relay knows it. */
  async function leave(client: ReturnType<JoinPair['say']>) {
    client.socket.destroy();
    await until(() => pair.relay.open.count() === 0);
  }

  test.each([
    ['a text', {}],
    ['a nudge', { text: '' }],
    ['a reset', { action: 'RESET_CHANNEL', text: '' }],
    ['a consent', { action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents: [] }],
  ])('is one run while that goes on, and another one after its end, with %s', async (_what, changes) => {
    pair = await startJoinPair({}, () => [INIT]);
    const message = { ...changes, ...NO_ID };
    const clients = [pair.say(message), pair.say(message)];
    for (const client of clients) await client.waitFor('run.init');
    const later = pair.say(message);
    clients.push(later);
    await later.waitFor('run.init');
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
    await pair.say(message).waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('gets all of its run if it comes within the grace', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const cut = pair.say(NO_ID);
    await cut.waitFor('run.init');
    await leave(cut);
    pair.emit(DELTA);
    const back = pair.say(NO_ID);
    await back.waitFor('message.delta');
    pair.emit(...EVENTS.slice(2));
    pair.finish();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('runs again once its run was given up', async () => {
    pair = await startJoinPair({ JOIN_GRACE_MS: '1' }, () => [INIT]);
    const cut = pair.say(NO_ID);
    await cut.waitFor('run.init');
    const { service } = pair;
    await leave(cut);
    await until(() => service.destroyed);
    await pair.say(NO_ID).waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is another one with another text, in another conversation, or as another user', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const cookie = await pair.relay.signIn(OTHER_USER);
    const clients = [
      pair.say(NO_ID),
      pair.say({ ...NO_ID, text: 'hello' }),
      pair.say({ ...NO_ID, customChannelId: 'c2' }),
      pair.say(NO_ID, { cookie }),
    ];
    for (const client of clients) await client.waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(4);
  });
});

describeWithRedis('a message without an id, posted again at another instance', () => {
  let all: JoinInstances;
  afterEach(() => all.close());

  test('is one run while that goes on, and another one after its end', async () => {
    all = await startJoinInstances(2, {}, () => [INIT]);
    const clients = [0, 1, 0, 1].map((at) => all.say(at, NO_ID));
    for (const client of clients) await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
    await runsEnded(all.redis);
    await all.say(1, NO_ID).waitFor('run.init');
    expect(all.upstream.requests).toHaveLength(2);
  });

  test('gets all of its run if it comes within the grace', async () => {
    all = await startJoinInstances(2, {}, () => [INIT]);
    const cut = all.say(0, NO_ID);
    await cut.waitFor('run.init');
    cut.socket.destroy();
    await until(() => (all.relays[0] as TestRelay).open.count() === 0);
    const back = all.say(1, NO_ID);
    await back.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });
});
