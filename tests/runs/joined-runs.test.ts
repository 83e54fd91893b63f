import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
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
  messageBody,
  problemOf,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { jsonAnswer, suspend } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { BOT_PATH, OTHER_USER } from '../harness/relay/relay.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

let pair: JoinPair;
afterEach(async () => {
  await pair.close();
  await stopProcesses();
});

const NO_ID = { customMessageId: undefined };
const other = { text: 'other', customMessageId: 'another-message-01' };

const open = () => pair.relay.open.count();
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
    for (const [_n, event] of EVENTS.entries()) {
      pair.emit(event);
      await client.waitFor(`"n":${JSON.parse(event.slice(event.indexOf('{'))).n}`);
      client.socket.destroy();
      client = pair.say();
      await client.waitFor('"n":0');
      const others = [pair.say(), pair.say()];
      for (const other of others) await other.waitFor('"n":0');
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
    clients.push(pair.say(), pair.byName());
    await until(() => open() === 3);
    pair.service.write(plainAnswer('500 No', []));
    const failure = { code: 'upstream_bad_response', status: 502, maybeStarted: true, retryable: false };
    for (const client of clients) expect(await errorEventOf(client)).toMatchObject(failure);
    // It may have run, so that it is not sent again.
    for (const again of [pair.say(), pair.byName()]) expect(await errorEventOf(again)).toMatchObject(failure);
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
    await pair.leave(first);
    pair.emit('\uFEFF', ...EVENTS);
    pair.finish();
    const body = await bodyOf(second);
    expect(body.replaceAll(':\n', '')).toBe(WHOLE);
  });

  test.each([{}, NO_ID])(
    'joins nothing with another body, in another conversation, or as another user: %j',
    async (message) => {
      pair = await startJoinPair({}, () => [INIT]);
      const cookie = await pair.relay.signIn(OTHER_USER);
      const clients = [
        pair.say(message),
        pair.say({ ...message, text: 'hello' }),
        pair.say({ ...message, customChannelId: 'c2' }),
        pair.say({ ...message, customMessageId: `${ID}2` }),
        pair.say(message, { cookie }),
      ];
      for (const client of clients) await client.waitFor('run.init');
      expect(pair.upstream.requests).toHaveLength(5);
      expect(await problemOf(pair.byName({ cookie, channel: 'c2' }))).toMatchObject({ code: 'run_over' });
    },
  );

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

  test('is told with all others that it was stopped', async () => {
    pair = await startJoinPair(
      { RATE_LIMIT: '1', RATE_WINDOW_MS: '300000', RATE_MAX_WAIT_MS: '600000' },
      ({ requestLine }, socket) => {
        if (!requestLine.includes('/suspend')) return [INIT];
        socket.write(jsonAnswer('404 Not Found', {}));
        return undefined;
      },
    );
    await pair.say({ ...other, customChannelId: 'c2' }).waitFor('run.init');
    const clients = [pair.say(), pair.say()];
    await pair.relay.logLine(({ msg }) => msg === 'run joined');
    expect((await suspend(pair)).status).toBe(200);
    for (const client of clients) expect(await bodyOf(client)).toContain('"code":"stopped"');
    expect(pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/sse'))).toHaveLength(1);
  });

  test('is refused by the budget each time, if nobody has sent it', async () => {
    pair = await startJoinPair({ RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', RATE_MAX_WAIT_MS: '0' }, () => [
      INIT,
    ]);
    const taken = pair.say(other);
    await taken.waitFor('run.init');
    expect(taken.text()).toMatch(/^RateLimit: "endpoint";r=0;t=\d+\r$/m);
    for (let n = 0; n < 2; n++) {
      const refused = pair.say();
      expect(await problemOf(refused)).toMatchObject({ code: 'rate_limited', retryable: 'new message' });
      expect(refused.text()).toMatch(/^RateLimit-Policy: "endpoint";q=1;w=600\r$/m);
      expect(refused.text()).toMatch(/^Retry-After: \d+\r$/m);
    }
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('joins nothing if its body is not whole, and gives its place back', async () => {
    pair = await startJoinPair({ MAX_STREAMS_PER_USER: '1' }, () => [INIT]);
    await pair.say().waitFor('run.init');
    const body = messageBody();
    for (let n = 0; n < 20; n++) {
      const half = pair.ask({ body: body.slice(0, -1), headers: ['Connection: close'] });
      expect(await problemOf(half)).toMatchObject({ code: 'invalid_json' });
    }
    await pair.say().waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

describe('a message without an id, posted again', () => {
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

  test('runs again once its run was given up', async () => {
    pair = await startJoinPair({ JOIN_GRACE_MS: '1' }, () => [INIT]);
    const cut = pair.say(NO_ID);
    await cut.waitFor('run.init');
    const { service } = pair;
    await pair.leave(cut);
    await until(() => service.destroyed);
    await pair.say(NO_ID).waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
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
});

/** How many requests have joined a run, by how. */
async function joined() {
  const text = await pair.relay.metricsText();
  const count = (outcome: string) => total(text, 'bot_relay_runs_joined_total', { outcome });
  return { live: count('live'), ended: count('ended'), resumed: count('resumed') };
}

test('bot_relay_runs_joined_total counts each request that gets the stream of another one, by how', async () => {
  pair = await startJoinPair({ METRICS_PORT: '9090' }, () => [INIT, DELTA, KEPT]);
  const first = pair.say();
  await first.waitFor('message.complete');
  expect(await joined()).toEqual({ live: 0, ended: 0, resumed: 0 });
  const live = [pair.say(), pair.byName()];
  for (const client of live) await client.waitFor('message.complete');
  expect(await joined()).toEqual({ live: 2, ended: 0, resumed: 0 });
  const resumed = pair.say({}, { headers: ['Last-Event-ID: 7'] });
  pair.emit(...EVENTS.slice(3));
  pair.finish();
  expect(await bodyOf(resumed)).toBe(EVENTS.slice(3).join(''));
  for (const client of [first, ...live]) expect(await bodyOf(client)).toBe(WHOLE);
  expect(await joined()).toEqual({ live: 2, ended: 0, resumed: 1 });
  expect(await bodyOf(pair.say())).toBe(WHOLE);
  expect(await joined()).toEqual({ live: 2, ended: 1, resumed: 1 });
});

test('a message that would join a run is refused if its operations have been turned off since', async () => {
  const entry = (...operations: string[]) => JSON.stringify({ 'acme/helper': { operations } });
  const BOTS_FILE = join(freshFolder({ 'bots.json': entry('message') }), 'bots.json');
  pair = await startJoinPair({ BOTS_FILE }, () => [INIT, DELTA]);
  await pair.say().waitFor('message.delta');
  await pair.say().waitFor('message.delta');
  writeFileSync(BOTS_FILE, entry('chat'));
  await pair.relay.logLine(({ msg }) => String(msg).startsWith('reloaded'));
  for (const refused of [pair.say(), pair.say({}, { headers: ['Last-Event-ID: 7'] }), pair.byName()]) {
    await refused.waitFor('\r\n\r\n');
    expect(statusOf(refused)).toBe(501);
    expect(await problemOf(refused)).toMatchObject({ code: 'operation_not_enabled' });
  }
  expect(pair.upstream.requests).toHaveLength(1);
});
