import { afterEach, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  EVENTS,
  errorEventOf,
  INIT,
  problemOf,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  expectExpiring,
  type JoinInstances,
  keysWhen,
  runsEnded,
  startJoinInstances,
} from '../harness/relay/join-instances.ts';
import { BOT_PATH, type TestRelay } from '../harness/relay/relay.ts';
import { plainAnswer, until } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

let all: JoinInstances;
afterEach(() => all.close());

/** A service that answers each message with a whole stream at once. */
const whole = (environment: Record<string, string> = {}) =>
  startJoinInstances(2, environment, ({ requestLine }, socket) => {
    socket.write(requestLine.includes('/sse') ? wholeStream(...EVENTS) : plainAnswer('204 No Content', []));
    return undefined;
  });

describeWithRedis('a name that all instances know', () => {
  test('is joined while its run goes on, and after its end', async () => {
    all = await startJoinInstances(2, {}, () => [INIT]);
    const first = all.say(0);
    await first.waitFor('run.init');
    const second = all.say(1);
    await second.waitFor('run.init');
    const byName = all.byName(1);
    await byName.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of [first, second, byName]) expect(await bodyOf(client)).toBe(WHOLE);
    for (const at of [0, 1]) {
      expect(await bodyOf(all.say(at))).toBe(WHOLE);
      expect(await bodyOf(all.byName(at))).toBe(WHOLE);
      expect(await bodyOf(all.byName(at, { headers: ['Last-Event-ID: 7'] }))).toBe(EVENTS.slice(3).join(''));
    }
    expect(all.upstream.requests).toHaveLength(1);
    const stored = JSON.stringify(await all.redis.command('XRANGE', await logKey(), '-', '+'));
    expect(stored).not.toContain('asgard');
  });

  test('is claimed by one of two that ask at once', async () => {
    all = await startJoinInstances(2, {}, () => [INIT]);
    const clients = Array.from({ length: 6 }, (_, n) => all.say(n % 2));
    for (const client of clients) await client.waitFor('run.init');
    all.emit(...EVENTS.slice(1));
    all.finish();
    for (const client of clients) expect(await bodyOf(client)).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('is refused with run_over everywhere once it is not kept', async () => {
    all = await whole({ JOIN_KEEP_MS: '0' });
    expect(await bodyOf(all.say(0))).toBe(WHOLE);
    await runsEnded(all.redis);
    for (const at of [0, 1]) {
      const refused = all.say(at);
      expect(await problemOf(refused)).toMatchObject({ code: 'run_over', retryable: false });
      expect(statusOf(refused)).toBe(410);
      expect(await problemOf(all.byName(at))).toMatchObject({ code: 'run_over' });
    }
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('is free when it is forgotten, and no key is there for ever', async () => {
    all = await whole({ JOIN_KEEP_MS: '0', JOIN_REMEMBER_MS: '1' });
    expect(await bodyOf(all.say(0))).toBe(WHOLE);
    await runsEnded(all.redis);
    expect(await bodyOf(all.say(1))).toBe(WHOLE);
    expect(all.upstream.requests).toHaveLength(2);
    await runsEnded(all.redis);
    await expectExpiring(all.redis);
  });

  test.each([
    ['DELETE', 'channel'],
    ['POST', 'channel/clear'],
  ])('is forgotten everywhere by %s %s', async (method, path) => {
    all = await whole();
    expect(await bodyOf(all.say(0))).toBe(WHOLE);
    await runsEnded(all.redis);
    expect(await bodyOf(all.say(1))).toBe(WHOLE);
    const url = `${BOT_PATH.replace('message/sse', path)}?custom_channel_id=c1`;
    const { port } = all.relays[1] as TestRelay;
    expect((await call(port, url, { method, headers: { Cookie: all.cookie } })).status).toBe(204);
    expect(await problemOf(all.byName(0))).toMatchObject({ code: 'run_over' });
    expect(await bodyOf(all.say(0))).toBe(WHOLE);
    expect(all.upstream.requests.filter(({ requestLine }) => requestLine.includes('/sse'))).toHaveLength(2);
  });

  test('of what certainly has not run is free, and all who wait get the same failure', async () => {
    all = await startJoinInstances(2, {}, () => undefined);
    const asked = all.upstream.nextRequest();
    const first = all.say(0);
    await asked;
    const second = all.say(1);
    const { relays } = all;
    await until(() => (relays[1] as TestRelay).logs.some(({ msg }) => msg === 'run joined'));
    all.streams[0]?.write(plainAnswer('422 No', []));
    for (const client of [first, second]) {
      expect(await errorEventOf(client)).toMatchObject({ code: 'upstream_refused', status: 422 });
    }
    const again = all.upstream.nextRequest();
    all.say(1);
    await again;
    expect(all.upstream.requests).toHaveLength(2);
  });

  test('of what may have run and has failed is told again with the same failure, and does not run again', async () => {
    all = await startJoinInstances(2, {}, (_request, socket) => {
      socket.write(plainAnswer('500 No', []));
      return undefined;
    });
    const failure = { code: 'upstream_bad_response', status: 502, maybeStarted: true, retryable: false };
    expect(await errorEventOf(all.say(0))).toMatchObject(failure);
    await runsEnded(all.redis);
    for (const again of [all.say(0), all.say(1), all.byName(0), all.byName(1)]) {
      expect(await errorEventOf(again)).toMatchObject(failure);
    }
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('of a consent is its own run, which can be joined only while it goes on', async () => {
    all = await whole();
    const consent = { action: 'RESPONSE_TOOL_CALL_CONSENT', text: '', toolCallConsents: [{ id: 'a' }] };
    await bodyOf(all.say(0));
    await bodyOf(all.say(0, consent));
    await runsEnded(all.redis);
    await bodyOf(all.say(1, consent));
    expect(all.upstream.requests).toHaveLength(3);
  });
});

async function logKey(): Promise<string> {
  const keys = await keysWhen(all.redis, (found) => found.some((key) => key.includes(':log:')));
  return keys.find((key) => key.includes(':log:')) as string;
}
