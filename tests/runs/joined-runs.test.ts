import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import {
  bodyOf,
  DELTA,
  DONE,
  EVENTS,
  errorEventOf,
  ID,
  INIT,
  type JoinPair,
  KEPT,
  problemOf,
  startJoinPair,
  WHOLE,
} from '../harness/clients/joining.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { BOT_PATH, OTHER_USER } from '../harness/relay/relay.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';

let pair: JoinPair;
afterEach(() => pair.close());

const open = () => pair.relay.open.count();
/** Waits until a client's connection is over at the relay, too. */
async function leave(client: RawClient) {
  const before = open();
  client.socket.destroy();
  await until(() => open() < before);
}

describe('the same message, sent again while it runs', () => {
  test('gets the whole stream from the start, and the same end', async () => {
    pair = await startJoinPair({}, () => [INIT, DELTA]);
    const first = pair.say();
    await first.waitFor('message.delta');
    const second = pair.say();
    await second.waitFor('message.delta');
    pair.emit(...EVENTS.slice(2));
    pair.finish();
    expect(await bodyOf(first)).toBe(WHOLE);
    expect(await bodyOf(second)).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
    const line = await pair.relay.logLine(({ msg }) => msg === 'run joined');
    const [one, two] = pair.relay.logs
      .filter(({ msg, bot }) => msg === 'request' && bot)
      .map((l) => l.requestId);
    expect(line).toMatchObject({ bot: 'acme/helper', outcome: 'live' });
    expect([one, two].sort()).toEqual([line.requestId, line.runRequestId].sort());
  });

  test('joins the run at every event, also three times at once', async () => {
    pair = await startJoinPair({ RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
    let client = pair.say();
    await client.waitFor('\r\n\r\n');
    for (const [n, event] of EVENTS.entries()) {
      pair.emit(event);
      await client.waitFor(`"n":${JSON.parse(event.slice(event.indexOf('{'))).n}`);
      client.socket.destroy();
      client = pair.say();
      await client.waitFor('"n":0');
      const others = [pair.say(), pair.say()];
      for (const other of others) await other.waitFor(JSON.stringify({ n }).slice(1, 2));
      for (const other of others) other.socket.destroy();
    }
    pair.finish();
    expect(await bodyOf(client)).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('before its stream begins, gets the outcome of the first', async () => {
    let refuse = (_socket: Socket) => {};
    pair = await startJoinPair({}, (_request, socket) => {
      refuse(socket);
      return undefined;
    });
    const asked = pair.upstream.nextRequest();
    const clients = [pair.say()];
    await asked;
    clients.push(pair.say(), pair.say());
    await until(() => open() === 3);
    pair.service.write(plainAnswer('500 No', []));
    const failure = { code: 'upstream_bad_response', status: 502, maybeStarted: true, retryable: false };
    for (const client of clients) expect(await errorEventOf(client)).toMatchObject(failure);
    // It may have run, so that it is not sent again.
    expect(await errorEventOf(pair.say())).toMatchObject(failure);
    expect(pair.upstream.requests).toHaveLength(1);
    // What the service has refused may be sent again.
    refuse = (socket) => socket.write(plainAnswer('422 No', []));
    for (const expected of [2, 3]) {
      expect(await errorEventOf(pair.say({ text: 'other' }))).toMatchObject({
        ...{ code: 'upstream_refused', status: 422, retryable: false },
      });
      expect(pair.upstream.requests).toHaveLength(expected);
    }
  });

  test('waits with heartbeats if no event has come yet', async () => {
    pair = await startJoinPair({ HEARTBEAT_MS: '100' });
    const first = pair.say();
    await first.waitFor(':\n');
    const second = pair.say();
    await second.waitFor(':\n');
    await leave(first);
    pair.emit('\uFEFF', ...EVENTS);
    pair.finish();
    const body = await bodyOf(second);
    expect(body.replaceAll(':\n', '')).toBe(WHOLE);
  });

  test('joins nothing with another body, in another conversation, or as another user', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const cookie = await pair.relay.signIn(OTHER_USER);
    const clients = [
      pair.say(),
      pair.say({ text: 'hello' }),
      pair.say({ customChannelId: 'c2' }),
      pair.say({ customMessageId: `${ID}2` }),
      pair.say({}, { cookie }),
    ];
    for (const client of clients) await client.waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(5);
    expect(await problemOf(pair.byName({ cookie, channel: 'c2' }))).toMatchObject({ code: 'run_over' });
  });

  test('is a second one with JOIN=off', async () => {
    pair = await startJoinPair({ JOIN: 'off' }, () => [INIT]);
    for (const client of [pair.say(), pair.say()]) await client.waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is named by Idempotency-Key where its body has no id', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const headers = ['Idempotency-Key: key-of-this-message-1'];
    for (let n = 0; n < 2; n++)
      await pair.say({ customMessageId: undefined }, { headers }).waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(1);
    await pair.byName({ id: 'key-of-this-message-1' }).waitFor('run.init');
  });

  test('takes no slot and no place for a stream', async () => {
    pair = await startJoinPair(
      { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0', MAX_STREAMS_PER_USER: '1' },
      () => [INIT],
    );
    await pair.say().waitFor('run.init');
    for (let n = 0; n < 5; n++) await pair.say().waitFor('run.init');
    expect(await problemOf(pair.say({ text: 'new' }))).toMatchObject({
      code: 'too_many_streams',
      retryable: 'new message',
    });
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

test('a message with another query that is passed on is another one', async () => {
  pair = await startJoinPair({ FORWARD_QUERY: 'is_debug' }, () => [INIT]);
  const path = (query: string) => ({ path: `${BOT_PATH}?${query}` });
  await pair.say().waitFor('run.init');
  await pair.say({}, path('other=1')).waitFor('run.init');
  expect(pair.runs()).toHaveLength(1);
  await pair.say({}, path('is_debug=true')).waitFor('run.init');
  await pair.say({}, path('is_debug=true&other=1')).waitFor('run.init');
  expect(pair.runs()).toHaveLength(2);
});

describe('with Last-Event-ID', () => {
  const resumed = (id: string) => ({ headers: [`Last-Event-ID: ${id}`] });

  test('begins behind that event, and asks nobody', async () => {
    pair = await startJoinPair({}, () => [INIT, DELTA, KEPT]);
    const first = pair.say();
    await first.waitFor('message.complete');
    const second = pair.say({}, resumed('7'));
    await until(() => open() === 2);
    pair.emit(EVENTS[3], DONE);
    pair.finish();
    expect(await bodyOf(second)).toBe(EVENTS[3] + DONE);
    expect(await bodyOf(first)).toBe(WHOLE);
    expect(await bodyOf(pair.say({}, resumed('7')))).toBe(EVENTS[3] + DONE);
    expect(await bodyOf(pair.byName({ headers: ['Last-Event-ID: 7'] }))).toBe(EVENTS[3] + DONE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('goes to the service if the relay does not know that event or that run', async () => {
    pair = await startJoinPair({}, ({ all }) => (all('last-event-id').length > 0 ? [DELTA] : [INIT, KEPT]));
    await pair.say().waitFor('message.complete');
    await pair.say({}, resumed('8')).waitFor('message.delta');
    expect(pair.upstream.requests[1]?.all('last-event-id')).toEqual(['8']);
    await pair.say({ text: 'other' }, resumed('7')).waitFor('message.delta');
    expect(pair.upstream.requests).toHaveLength(3);
    expect(await problemOf(pair.byName({ headers: ['Last-Event-ID: 8'] }))).toMatchObject({
      code: 'run_not_kept',
    });
  });

  test('goes on without a hole after each of ten reconnections', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    let client = pair.say();
    await client.waitFor('run.init');
    for (let n = 1; n <= 10; n++) {
      const kept = `id: ${n}\n${DELTA}`;
      pair.emit(kept, DELTA);
      await until(() => dechunk(client.text()).body.endsWith(kept + DELTA));
      client.socket.destroy();
      client = pair.say({}, resumed(String(n)));
      await client.waitFor(DELTA);
      expect(client.text()).not.toContain(kept);
    }
    pair.emit(DONE);
    pair.finish();
    expect(await bodyOf(client)).toBe(DELTA + DONE);
    const all = `${INIT}${Array.from({ length: 10 }, (_, n) => `id: ${n + 1}\n${DELTA}${DELTA}`).join('')}${DONE}`;
    expect(await bodyOf(pair.say())).toBe(all);
    expect(pair.upstream.requests).toHaveLength(1);
  });
});
