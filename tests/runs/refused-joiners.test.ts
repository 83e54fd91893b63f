import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, jest, test } from '@jest/globals';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import { call } from '../harness/clients/call.ts';
import { DELTA, INIT, messageBody, problemOf, startJoinPair, statusOf } from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { type JoinInstances, startJoinInstances } from '../harness/relay/join-instances.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

let all: JoinInstances;

const relay = (at: number) => all.relays[at] as TestRelay;
const hasBegun = (client: RawClient) => until(() => client.text().includes('message.delta'));

const isOver = () => all.streams[0]?.destroyed === true || all.streams[0]?.readableEnded === true;

/** Marks all sessions of the user that have begun until now as ended. */
async function mark(): Promise<void> {
  await all.redis.command('ZADD', 'bot-relay:user-sessions:ada', String(Date.now() + MARK_MS), ENDED);
}

describeWithRedis.each([0, 1])('a message that would join a run at instance %i', (at) => {
  afterEach(() => all.close());

  test('is refused by its status if its session has ended', async () => {
    all = await startJoinInstances(2, {}, () => [INIT, DELTA]);
    const first = all.say(0);
    await hasBegun(first);
    const other = await relay(at).signIn();
    await mark();
    const refused = all.sayAs(other, at);
    expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
    expect(statusOf(refused)).toBe(401);
    expect(all.upstream.requests).toHaveLength(1);
  });

  test('does not take the run over if its session has ended: the run ends with the session of who left it', async () => {
    all = await startJoinInstances(2, { JOIN_GRACE_MS: '600000' }, () => [INIT, DELTA]);
    const old = await relay(at).signIn();
    await mark();
    const fresh = await relay(0).signIn();
    const first = all.sayAs(fresh, 0);
    await hasBegun(first);
    first.socket.destroy();
    await relay(0).logLine(({ bot, status }) => bot !== undefined && status === 200);
    const refused = all.sayAs(old, at);
    expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
    expect(isOver()).toBe(false);
    await call(relay(0).port, '/auth/logout', { method: 'POST', headers: { Cookie: fresh } });
    await until(isOver);
  });

  test('does not end the oldest of 64 readers if its session has ended', async () => {
    all = await startJoinInstances(2, { MAX_STREAMS_PER_USER: '100', CLIENT_LIMIT_PER_SESSION: '0' }, () => [
      INIT,
      DELTA,
    ]);
    const readers = [all.say(at)];
    await hasBegun(readers[0] as RawClient);
    for (let n = 1; n < 64; n++) readers.push(all.say(at));
    for (const reader of readers) await hasBegun(reader);
    jest.spyOn(relay(at).sessions, 'extend').mockResolvedValueOnce('removed');
    const text = rawMessage({ cookie: all.cookie, body: messageBody(), headers: ['Connection: close'] });
    expect(await problemOf(rawClient(relay(at).port, text))).toMatchObject({ code: 'unauthenticated' });
    all.emit(DELTA);
    for (const reader of readers) await until(() => reader.text().split('message.delta').length === 3);
  });
});

test('a message that would join a run in memory is refused by its status if its session has ended', async () => {
  const pair = await startJoinPair({}, () => [INIT, DELTA]);
  await hasBegun(pair.say());
  jest.spyOn(pair.relay.sessions, 'extend').mockResolvedValueOnce('removed');
  const refused = pair.say();
  expect(await problemOf(refused)).toMatchObject({ code: 'unauthenticated' });
  expect(statusOf(refused)).toBe(401);
  await pair.close();
});

test('a message that would join a run is refused if its operations have been turned off since', async () => {
  const entry = (...operations: string[]) => JSON.stringify({ 'acme/helper': { operations } });
  const BOTS_FILE = join(freshFolder({ 'bots.json': entry('message') }), 'bots.json');
  const pair = await startJoinPair({ BOTS_FILE }, () => [INIT, DELTA]);
  await hasBegun(pair.say());
  await hasBegun(pair.say());
  writeFileSync(BOTS_FILE, entry('chat'));
  await pair.relay.logLine(({ msg }) => String(msg).startsWith('reloaded'));
  for (const refused of [pair.say(), pair.say({}, { headers: ['Last-Event-ID: 7'] }), pair.byName()]) {
    await refused.waitFor('\r\n\r\n');
    expect(statusOf(refused)).toBe(501);
    expect(await problemOf(refused)).toMatchObject({ code: 'operation_not_enabled' });
  }
  expect(pair.upstream.requests).toHaveLength(1);
  await pair.close();
  await stopProcesses();
});
