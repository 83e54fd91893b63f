import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  EVENTS,
  errorEventOf,
  INIT,
  type JoinPair,
  messageBody,
  problemOf,
  startJoinPair,
  WHOLE,
} from '../harness/clients/joining.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';

let pair: JoinPair;
let late: RawClient | undefined;
afterEach(() => {
  jest.restoreAllMocks();
  late?.socket.destroy();
  late = undefined;
  return pair.close();
});

const ENDED = '"code":"session_ended"';
const signOut = (cookie: string, path = '/auth/logout') =>
  call(pair.relay.port, path, { method: 'POST', headers: { Cookie: cookie } });

/** A run that the user reads with two sessions; resolves with both cookies and clients. */
async function twoSessions() {
  pair = await startJoinPair({}, () => [INIT]);
  const second = await pair.relay.signIn();
  const clients = [pair.say(), pair.say({}, { cookie: second })] as const;
  for (const client of clients) await client.waitFor('run.init');
  return { cookies: [pair.cookie, second] as const, clients };
}

describe('the end of a session', () => {
  test('ends its own readers; the others go on', async () => {
    const { cookies, clients } = await twoSessions();
    await signOut(cookies[0]);
    const ended = await bodyOf(clients[0]);
    expect(ended.startsWith(INIT)).toBe(true);
    expect(ended).toContain(ENDED);
    pair.emit(...EVENTS.slice(1));
    pair.finish();
    expect(await bodyOf(clients[1])).toBe(WHOLE);
  });

  test('ends the run if nobody else reads it', async () => {
    const { cookies, clients } = await twoSessions();
    const { service } = pair;
    await pair.leave(clients[1]);
    expect(service.destroyed).toBe(false);
    await signOut(cookies[0]);
    expect(await bodyOf(clients[0])).toContain(ENDED);
    await until(() => service.destroyed);
    // Another session of the user gets no answer that has ended with a session.
    expect(await problemOf(pair.say({}, { cookie: cookies[1] }))).toMatchObject({ code: 'run_over' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('ends the run that its clients have left, with the session of the last one', async () => {
    const { cookies, clients } = await twoSessions();
    const { service } = pair;
    await pair.leave(clients[0]);
    await pair.leave(clients[1]);
    await signOut(cookies[0]);
    const back = pair.say({}, { cookie: cookies[1] });
    await back.waitFor('run.init');
    await pair.leave(back);
    expect(service.destroyed).toBe(false);
    await signOut(cookies[1]);
    await until(() => service.destroyed);
  });

  test('of all of a user ends all', async () => {
    const { cookies, clients } = await twoSessions();
    const { service } = pair;
    await signOut(cookies[0], '/auth/logout-all');
    for (const client of clients) expect(await bodyOf(client)).toContain(ENDED);
    await until(() => service.destroyed);
  });

  test('before the stream begins tells its own client that the answer is lost', async () => {
    pair = await startJoinPair({}, () => undefined);
    const second = await pair.relay.signIn();
    const asked = pair.upstream.nextRequest();
    const clients = [pair.say(), pair.say({}, { cookie: second })] as const;
    await asked;
    await until(() => pair.relay.open.count() === 2);
    await signOut(pair.cookie);
    expect(await errorEventOf(clients[0])).toMatchObject({
      ...{ code: 'answer_lost', status: 502, maybeStarted: true },
    });
    pair.service.write(
      'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    pair.emit(...EVENTS);
    pair.finish();
    expect(await bodyOf(clients[1])).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('before the stream begins leaves no answer for another session', async () => {
    pair = await startJoinPair({}, () => undefined);
    const second = await pair.relay.signIn();
    const asked = pair.upstream.nextRequest();
    const first = pair.say();
    await asked;
    await signOut(pair.cookie);
    await first.closed;
    expect(await problemOf(pair.say({}, { cookie: second }))).toMatchObject({ code: 'run_over' });
  });
});

test('a run without clients is no use of its session, and ends when that expires', async () => {
  pair = await startJoinPair({}, () => [INIT], { idleMs: 600_000 });
  const client = pair.say();
  await client.waitFor('run.init');
  const { service } = pair;
  await pair.leave(client);
  const expiry = async () => (await stored(pair.relay.sessions, idOf(pair.cookie)))?.idleExpiresAt;
  const before = await expiry();
  advanceClocks({ date: 300_000 });
  const bytes = pair.relay.runs.bytes();
  const large = `data: ${'x'.repeat(30_000)}\n\n`;
  pair.emit(large);
  await until(() => pair.relay.runs.bytes() >= bytes + large.length);
  expect(await expiry()).toBe(before);
  expect(service.destroyed).toBe(false);
  advanceClocks({ date: 660_000 });
  await until(() => service.destroyed);
});

const TAIL_BYTES = 5;

/** A second session, whose message has come but for its last bytes. */
async function lateMessage() {
  const cookie = await pair.relay.signIn();
  const all = rawMessage({ cookie, body: messageBody(), headers: ['Connection: close'] });
  const before = pair.relay.open.count();
  const client = rawClient(pair.relay.port, all.slice(0, -TAIL_BYTES));
  late = client;
  await until(() => pair.relay.open.count() > before);
  return {
    client,
    signOut: () => signOut(cookie),
    finish: () => client.socket.write(all.slice(-TAIL_BYTES)),
  };
}

describe('a message whose session ends while its body arrives', () => {
  test.each([true, false])('gets nothing of a run; that has ended: %s', async (hasEnded) => {
    pair = await startJoinPair({}, () => EVENTS);
    const first = pair.say();
    await first.waitFor('run.done');
    if (hasEnded) {
      pair.finish();
      expect(await bodyOf(first)).toBe(WHOLE);
    }
    const { client, signOut, finish } = await lateMessage();
    await signOut();
    finish();
    expect(await problemOf(client)).toMatchObject({ status: 401, code: 'session_ended' });
    expect(client.text()).toMatch(/^HTTP\/1.1 401 /);
  });

  test('does not end a run that another session has left', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const first = pair.say();
    await first.waitFor('run.init');
    const { client, signOut, finish } = await lateMessage();
    await signOut();
    first.socket.destroy();
    await until(() => pair.relay.open.count() === 1);
    const { service } = pair;
    finish();
    await client.closed;
    const back = pair.say();
    await back.waitFor('run.init');
    expect(service.destroyed).toBe(false);
  });
});
