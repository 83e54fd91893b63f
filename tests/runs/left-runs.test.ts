import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import {
  bodyOf,
  DELTA,
  EVENTS,
  INIT,
  type JoinPair,
  problemOf,
  startJoinPair,
  WHOLE,
} from '../harness/clients/joining.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

let pair: JoinPair;
afterEach(() => pair.close());

const lines = (msg: string) => pair.relay.logs.filter((line) => line.msg === msg);
const leftOutcomes = () => lines('run without a client').map(({ outcome }) => outcome);

/** Sends a message whose stream has begun; resolves with its client. */
async function begin(environment: Record<string, string> = {}): Promise<RawClient> {
  pair = await startJoinPair({ METRICS_PORT: '9090', ...environment }, () => [INIT]);
  const client = pair.say();
  await client.waitFor('run.init');
  return client;
}

describe('a run that its last client has left', () => {
  test('goes on, and whoever comes back gets all of it', async () => {
    const client = await begin();
    await pair.leave(client);
    pair.emit(DELTA);
    const back = pair.say();
    await back.waitFor('message.delta');
    pair.emit(...EVENTS.slice(2));
    pair.finish();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
    expect(leftOutcomes()).toEqual(['returned']);
    expect(await pair.relay.metricsText()).toMatch(/^bot_relay_runs_left_total\{outcome="returned"\} 1$/m);
  });

  test('is closed if nobody comes back in time, and does not run again', async () => {
    const client = await begin({ JOIN_GRACE_MS: '1' });
    const { service } = pair;
    await pair.leave(client);
    await until(() => service.destroyed);
    await until(() => leftOutcomes().length === 1);
    expect(leftOutcomes()).toEqual(['expired']);
    expect(await problemOf(pair.say())).toMatchObject({ code: 'run_over' });
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(pair.upstream.requests).toHaveLength(1);
    expect(pair.relay.runs.bytes()).toBe(0);
  });

  test('is kept if it ends by itself meanwhile', async () => {
    const client = await begin();
    await pair.leave(client);
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    await until(() => leftOutcomes().length === 1);
    expect(leftOutcomes()).toEqual(['ended']);
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('is closed at once with JOIN_GRACE_MS=0', async () => {
    const client = await begin({ JOIN_GRACE_MS: '0' });
    const { service } = pair;
    client.socket.destroy();
    await until(() => service.destroyed);
    expect(leftOutcomes()).toEqual([]);
  });

  test('has its place until it is closed', async () => {
    const client = await begin({ MAX_STREAMS_PER_USER: '1' });
    await pair.leave(client);
    const other = { text: 'other', customMessageId: 'another-message-01' };
    expect(await problemOf(pair.say(other))).toMatchObject({ code: 'too_many_streams' });
    pair.finish();
    await until(() => leftOutcomes().length === 1);
    await pair.say(other).waitFor('run.init');
  });

  test('is read up to its bound, and on when somebody comes back', async () => {
    const client = await begin({ JOIN_MAX_BYTES: '65536' });
    await pair.leave(client);
    const large = `data: ${'x'.repeat(30_000)}\n\n`;
    const sent = 200;
    for (let n = 0; n < sent; n++) pair.emit(large);
    await until(() => pair.relay.runs.bytes() >= 65_536);
    // All could have been read while these are answered.
    for (let n = 0; n < 20; n++) await bodyOf(pair.byName({ id: 'unknown' }));
    // Beyond the bound only what was on its way.
    expect(pair.relay.runs.bytes()).toBeLessThan(400_000);
    const back = pair.say();
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    expect(await bodyOf(back)).toBe(INIT + large.repeat(sent) + EVENTS.slice(1).join(''));
  });

  test('is not held by the start of a shutdown, since nobody can come back to it without Redis', async () => {
    const client = await begin();
    const { service } = pair;
    await pair.leave(client);
    pair.relay.open.endKinds(['left'], new Problem('draining', 'Over.'));
    await until(() => service.destroyed);
    const later = await bodyOf(pair.say());
    expect(later).toContain(INIT);
    expect(later).toContain('"code":"answer_lost"');
  });
});

describe('with SUSPEND_ON_LEAVE=on', () => {
  const suspends = () => pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/suspend'));

  async function start(JOIN_GRACE_MS: string) {
    pair = await startJoinPair({ SUSPEND_ON_LEAVE: 'on', JOIN_GRACE_MS }, ({ requestLine }, socket) => {
      if (!requestLine.includes('/suspend')) return [INIT];
      socket.write(jsonAnswer('200 OK', {}));
      return undefined;
    });
    const client = pair.say();
    await client.waitFor('run.init');
    await pair.leave(client);
  }

  test('a run is suspended when it is given up', async () => {
    await start('1');
    await until(() => suspends().length === 1);
    expect(suspends()[0]?.requestLine).toContain('request_id=run-1');
  });

  test('a run is not suspended if its client comes back', async () => {
    await start('600000');
    const back = pair.say();
    await back.waitFor('run.init');
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(suspends()).toHaveLength(0);
  });
});

describe('a client that leaves before the message has left', () => {
  /** One message has the only slot, so that the next waits for its own. */
  async function waiting(windowMs: number) {
    const pacing = { RATE_LIMIT: '1', RATE_WINDOW_MS: String(windowMs), RATE_MAX_WAIT_MS: '600000' };
    pair = await startJoinPair({ METRICS_PORT: '9090', ...pacing }, () => [INIT]);
    await pair.say({ text: 'first', customMessageId: 'another-message-01' }).waitFor('run.init');
    const client = pair.say();
    await until(() => pair.relay.open.count() === 2);
    return client;
  }

  test('drops it at once', async () => {
    const client = await waiting(300_000);
    await pair.leave(client);
    await until(async () =>
      (await pair.relay.metricsText()).includes('wait_seconds_count{outcome="given_up"} 1'),
    );
    expect(pair.upstream.requests).toHaveLength(1);
    expect(leftOutcomes()).toEqual([]);
  });

  test('does not, if another waits for it, or comes then', async () => {
    const client = await waiting(1_000);
    const second = pair.say();
    await until(() => pair.relay.open.count() === 3);
    await pair.leave(client);
    await second.waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('drops it when the service asks to wait', async () => {
    pair = await startJoinPair({}, () => undefined);
    const asked = pair.upstream.nextRequest();
    const client = pair.say();
    await asked;
    await pair.leave(client);
    expect(pair.service.destroyed).toBe(false);
    pair.service.write(plainAnswer('429 No', ['Retry-After: 1']));
    // It is over, and was not sent again.
    await until(() => leftOutcomes().length === 1);
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

test('a client that leaves while the service has not answered yet can come back', async () => {
  pair = await startJoinPair({}, () => undefined);
  const asked = pair.upstream.nextRequest();
  const client = pair.say();
  await asked;
  await pair.leave(client);
  const back = pair.say();
  await until(() => pair.relay.open.count() === 1);
  pair.service.write(
    'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
  );
  pair.emit(...EVENTS);
  pair.finish();
  expect(await bodyOf(back)).toBe(WHOLE);
  expect(pair.upstream.requests).toHaveLength(1);
});

/** The lines of messages, not of the sign-in. */
const requests = () => lines('request').filter(({ bot }) => bot !== undefined);
const ends = () => lines('run ended without a client');

/** Sends a message whose client leaves when its stream has begun; resolves when the relay has written its line. */
async function beginAlone(environment: Record<string, string> = {}): Promise<void> {
  const client = await begin({ RESUME_UPSTREAM: 'off', ...environment });
  await pair.leave(client);
  await until(() => requests().length === 1);
}

describe('a run that ends without a client has its own line in the log', () => {
  test('if it breaks off', async () => {
    await beginAlone();
    pair.service.destroy();
    await until(() => ends().length === 1);
    const [request] = requests();
    expect(ends()[0]).toMatchObject({
      ...{ level: 'warn', outcome: 'upstream_stream_broken', cause: 'ECONNRESET', notResumed: 'off' },
      ...{ requestId: request?.requestId, userId: request?.userId, bot: request?.bot, upstreamStatus: 200 },
    });
  });

  test('if the service fails', async () => {
    pair = await startJoinPair({}, () => undefined);
    const asked = pair.upstream.nextRequest();
    const client = pair.say();
    await asked;
    await pair.leave(client);
    pair.service.write(plainAnswer('500 No', []));
    await until(() => ends().length === 1);
    expect(ends()[0]).toMatchObject({
      ...{ level: 'warn', outcome: 'upstream_bad_response', upstreamStatus: 500 },
    });
  });

  test('if its deadline ends it', async () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    await beginAlone({ MAX_EXECUTION_MS: '50000' });
    const [endIt] = timers.mock.calls.find(([, ms]) => ms === 50_000) ?? [];
    advanceClocks({ monotonic: 60_000 });
    (endIt as () => void)();
    jest.restoreAllMocks();
    await until(() => ends().length === 1);
    expect(ends()[0]).toMatchObject({ level: 'warn', outcome: 'deadline_exceeded' });
    expect(await bodyOf(pair.say())).toContain('"code":"deadline_exceeded"');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('and none if it ends well, is given up, or has a client', async () => {
    await beginAlone({ JOIN_GRACE_MS: '1' });
    await until(() => lines('run without a client').length === 1);
    const other = pair.say({ customMessageId: 'message-0000000002' });
    await other.waitFor('run.init');
    pair.service.destroy();
    await bodyOf(other);
    await until(() => requests().length === 2);
    expect(ends()).toEqual([]);
    await pair.close();
    await beginAlone();
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    await until(() => lines('run without a client').length === 1);
    expect(ends()).toEqual([]);
  });
});

test('the line of a request that has joined a run says what that of the first says', async () => {
  const clients = [await begin({ RESUME_UPSTREAM: 'off' }), pair.say()];
  await clients[1]?.waitFor('run.init');
  pair.service.destroy();
  await Promise.all(clients.map(bodyOf));
  await until(() => requests().length === 2);
  await bodyOf(pair.say());
  await until(() => requests().length === 3);
  for (const line of requests())
    expect(line).toMatchObject({
      ...{ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', notResumed: 'off', upstreamStatus: 200 },
    });
});
