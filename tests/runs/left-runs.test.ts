import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call } from '../harness/clients/call.ts';
import {
  bodyOf,
  DELTA,
  EVENTS,
  errorEventOf,
  type First,
  INIT,
  type JoinPair,
  KEPT,
  messageBody,
  problemOf,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';
import { plainAnswer, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: JoinPair;
let late: RawClient | undefined;
afterEach(() => {
  jest.restoreAllMocks();
  late?.socket.destroy();
  return pair.close();
});

/** A service that begins each stream with one event. */
const INIT_ONLY: First = () => [INIT];
/** A service that answers each message with a whole stream at once. */
const ALL: First = (_request, socket) => {
  socket.write(wholeStream(...EVENTS));
  return undefined;
};
const NOTHING: First = () => undefined;
const start = async (environment: Record<string, string> = {}, first: First = INIT_ONLY) => {
  pair = await startJoinPair(environment, first);
};

/** Sends a message whose stream has begun; resolves with its client. */
async function begin(environment: Record<string, string> = {}): Promise<RawClient> {
  await start(environment);
  const client = pair.say();
  await client.waitFor('run.init');
  return client;
}
const leave = (client: RawClient) => pair.leave(client);
/** The same, but its client has left. */
async function beginAlone(environment?: Record<string, string>): Promise<void> {
  await leave(await begin(environment));
}
/** A message that the service has not answered yet. */
async function beginUnanswered(): Promise<RawClient> {
  await start({}, NOTHING);
  const asked = pair.upstream.nextRequest();
  const client = pair.say();
  await asked;
  return client;
}
/** The service sends the rest of the stream. */
function finish(from = 1): void {
  pair.emit(...EVENTS.slice(from));
  pair.finish();
}
/** The service sends the whole stream. */
function answer(): void {
  pair.service.write(STREAM_HEAD);
  finish(0);
}
const isGone = (service = pair.service) => until(() => service.destroyed);
const requests = () => pair.upstream.requests.length;
const lines = (msg: string) => pair.relay.logs.filter((line) => line.msg === msg);
const outcomes = () => lines('run without a client').map(({ outcome }) => outcome);
const OTHER = { text: 'other', customMessageId: 'another-message-01' };

/** Neither the message nor its name is answered with a stream. */
async function expectOver(cookie = pair.cookie): Promise<void> {
  for (const client of [pair.say({}, { cookie }), pair.byName({ cookie })]) {
    expect(await problemOf(client)).toMatchObject({ code: 'run_over', retryable: false });
    expect(statusOf(client)).toBe(410);
  }
}

describe('a run that its last client has left', () => {
  test('goes on, and whoever comes back gets all of it', async () => {
    await beginAlone();
    const back = pair.say();
    await back.waitFor('run.init');
    finish();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(requests()).toBe(1);
    expect(outcomes()).toEqual(['returned']);
    expect(await pair.relay.metricsText()).toMatch(/^bot_relay_runs_left_total\{outcome="returned"\} 1$/m);
  });

  test('is closed if nobody comes back in time, and does not run again', async () => {
    await beginAlone({ JOIN_GRACE_MS: '1' });
    await isGone();
    await until(() => outcomes().length === 1);
    expect(outcomes()).toEqual(['expired']);
    await expectOver();
    expect([requests(), await pair.relay.runBytes()]).toEqual([1, 0]);
  });

  test('is kept if it ends by itself meanwhile', async () => {
    await beginAlone();
    finish();
    await until(() => outcomes().length === 1);
    expect(outcomes()).toEqual(['ended']);
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    expect(requests()).toBe(1);
  });

  test('is closed at once with JOIN_GRACE_MS=0', async () => {
    const client = await begin({ JOIN_GRACE_MS: '0' });
    client.socket.destroy();
    await isGone();
    expect(outcomes()).toEqual([]);
  });

  test('has its place until it is closed', async () => {
    await beginAlone({ MAX_STREAMS_PER_USER: '1' });
    expect(await problemOf(pair.say(OTHER))).toMatchObject({ code: 'too_many_streams' });
    pair.finish();
    await until(() => outcomes().length === 1);
    await pair.say(OTHER).waitFor('run.init');
  });

  test('is read up to its bound, and on when somebody comes back', async () => {
    await beginAlone({ JOIN_MAX_BYTES: '65536' });
    const large = `data: ${'x'.repeat(30_000)}\n\n`;
    const sent = 200;
    for (let n = 0; n < sent; n++) pair.emit(large);
    await until(async () => (await pair.relay.runBytes()) >= 65_536);
    // All could have been read while these are answered.
    for (let n = 0; n < 20; n++) await bodyOf(pair.byName({ id: 'unknown' }));
    // Beyond the bound only what was on its way.
    expect(await pair.relay.runBytes()).toBeLessThan(400_000);
    const back = pair.say();
    finish();
    expect(await bodyOf(back)).toBe(INIT + large.repeat(sent) + EVENTS.slice(1).join(''));
  });

  test('is not held by the start of a shutdown, since nobody can come back to it without Redis', async () => {
    await beginAlone();
    pair.relay.parts.open.endKinds(['left'], new Problem('draining', 'Over.'));
    await isGone();
    const later = await bodyOf(pair.say());
    expect(later).toContain(INIT);
    expect(later).toContain('"code":"answer_lost"');
  });

  test('can be come back to before the service has answered', async () => {
    await leave(await beginUnanswered());
    const back = pair.say();
    await pair.relay.untilOpen(1);
    answer();
    expect(await bodyOf(back)).toBe(WHOLE);
    expect(requests()).toBe(1);
  });

  test.each([
    ['when it is given up', '1', 1],
    ['and not if its client comes back', '600000', 0],
  ])('is suspended with SUSPEND_ON_LEAVE=on %s', async (_when, JOIN_GRACE_MS, count) => {
    await start({ SUSPEND_ON_LEAVE: 'on', JOIN_GRACE_MS }, ({ requestLine }, socket) => {
      if (!requestLine.includes('/suspend')) return [INIT];
      socket.write(jsonAnswer('200 OK', {}));
      return undefined;
    });
    const client = pair.say();
    await client.waitFor('run.init');
    await pair.leave(client);
    const suspends = () =>
      pair.upstream.requests.filter(({ requestLine }) => requestLine.includes('/suspend'));
    if (count === 0) {
      const back = pair.say();
      await back.waitFor('run.init');
      finish();
      expect(await bodyOf(back)).toBe(WHOLE);
    } else await until(() => suspends().length === count);
    expect(suspends()).toHaveLength(count);
    if (count > 0) expect(suspends()[0]?.requestLine).toContain('request_id=run-1');
  });
});

describe('a client that leaves before the message has left', () => {
  /** One message has the only slot, so that the next waits for its own. */
  async function waiting(windowMs: number) {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: String(windowMs), RATE_MAX_WAIT_MS: '600000' });
    await pair.say(OTHER).waitFor('run.init');
    const client = pair.say();
    await pair.relay.untilOpen(2);
    return client;
  }

  test('drops it at once', async () => {
    await leave(await waiting(300_000));
    const given = 'wait_seconds_count{outcome="given_up"} 1';
    await until(async () => (await pair.relay.metricsText()).includes(given));
    expect(requests()).toBe(1);
    expect(outcomes()).toEqual([]);
  });

  test('does not, if another waits for it, or comes then', async () => {
    const client = await waiting(500);
    const second = pair.say();
    await pair.relay.untilOpen(3);
    await pair.leave(client);
    await second.waitFor('run.init');
    expect(requests()).toBe(2);
  });

  test('drops it when the service asks to wait', async () => {
    await leave(await beginUnanswered());
    expect(pair.service.destroyed).toBe(false);
    pair.service.write(plainAnswer('429 No', ['Retry-After: 1']));
    // It is over, and was not sent again.
    await until(() => outcomes().length === 1);
    expect(requests()).toBe(1);
  });
});

describe('a run that ends without a client has its own line in the log', () => {
  /** The lines of messages, not of the sign-in. */
  const messages = () => lines('request').filter(({ bot }) => bot !== undefined);
  const ends = () => lines('run ended without a client');
  const ended = () => until(() => ends().length === 1);
  const BROKEN = {
    ...{ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', notResumed: 'off', upstreamStatus: 200 },
  };

  test('if it breaks off', async () => {
    await beginAlone({ RESUME_UPSTREAM: 'off' });
    await until(() => messages().length === 1);
    pair.service.destroy();
    await ended();
    const [{ requestId, userId, bot } = {}] = messages();
    expect(ends()[0]).toMatchObject({ level: 'warn', ...BROKEN, requestId, userId, bot });
  });

  test('if its deadline ends it', async () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    await beginAlone({ MAX_EXECUTION_MS: '50000' });
    const [endIt] = timers.mock.calls.find(([, ms]) => ms === 50_000) ?? [];
    advanceClocks({ monotonic: 60_000 });
    (endIt as () => void)();
    jest.restoreAllMocks();
    await ended();
    expect(ends()[0]).toMatchObject({ level: 'warn', outcome: 'deadline_exceeded' });
    expect(await bodyOf(pair.say())).toContain('"code":"deadline_exceeded"');
    expect(requests()).toBe(1);
  });

  test('and none if it ends well, is given up, or has a client, whose lines say what that of the first says', async () => {
    await beginAlone({ RESUME_UPSTREAM: 'off', JOIN_GRACE_MS: '1' });
    await until(() => outcomes().length === 1);
    const clients = [pair.say(OTHER), pair.say(OTHER)];
    for (const client of clients) await client.waitFor('run.init');
    pair.service.destroy();
    for (const client of [...clients, pair.say(OTHER)]) await bodyOf(client);
    await until(() => messages().length === 4);
    for (const line of messages().slice(1)) expect(line).toMatchObject(BROKEN);
    expect(ends()).toEqual([]);
    await pair.close();
    await beginAlone();
    finish();
    await until(() => outcomes().length === 1);
    expect(ends()).toEqual([]);
  });
});

describe('the same message after the end of its run', () => {
  test('gets the whole stream again, also with files alone', async () => {
    await start({}, ALL);
    const files = { text: '', blobIds: ['b'] };
    for (const client of [pair.say(), pair.say(), pair.byName(), pair.say(files), pair.say(files)])
      expect(await bodyOf(client)).toBe(WHOLE);
    expect(await pair.relay.runBytes()).toBeGreaterThan(0);
    expect(requests()).toBe(2);
  });

  test('gets run_over once its answer is not kept any more', async () => {
    await start({ JOIN_KEEP_MS: '1' }, ALL);
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    await until(async () => (await pair.relay.runBytes()) === 0);
    await expectOver();
    expect(requests()).toBe(1);
  });

  test('runs again when all is forgotten', async () => {
    await start({ JOIN_KEEP_MS: '1', JOIN_REMEMBER_MS: '1' }, ALL);
    await until(async () => (await bodyOf(pair.say())) === WHOLE && pair.runs().length === 2);
  });

  test('ends as it did, where the service has broken the stream', async () => {
    const first = await begin({ RESUME_UPSTREAM: 'off' });
    pair.emit(KEPT);
    await first.waitFor('message.complete');
    pair.service.destroy();
    for (const client of [first, pair.say()]) {
      const [events, error] = (await bodyOf(client)).split('event: error');
      expect(events).toBe(INIT + KEPT);
      expect(error).toContain('"code":"upstream_stream_broken"');
    }
    expect(requests()).toBe(1);
    // A resumption is not answered from a stream that broke.
    await pair.say({}, { headers: ['Last-Event-ID: 7'] }).waitFor('run.init');
    expect(requests()).toBe(2);
  });

  test('is over, where its stream was cut inside an event too large to hold', async () => {
    await start({}, () => [INIT, `data: ${'x'.repeat(70_000)}`]);
    const clients = [pair.say(), pair.say()];
    for (const client of clients) await client.waitFor('xxx');
    pair.service.destroy();
    for (const { closed, text } of clients) {
      await closed;
      expect(dechunk(text())).toMatchObject({ complete: false });
    }
    await expectOver();
    expect(requests()).toBe(1);
  });
});

test('a consent is its own run, with the id of the message whose run still waits for it', async () => {
  const message = await begin();
  const consent = { action: 'RESPONSE_TOOL_CALL_CONSENT', text: '', toolCallConsents: [{ id: 'a' }] };
  await pair.say(consent).waitFor('run.init');
  expect(requests()).toBe(2);
  pair.emit(DELTA);
  await pair.byName().waitFor('message.delta');
  expect(message.text()).not.toContain('message.delta');
});

describe('the names of a conversation are forgotten', () => {
  test('by a message that resets it, once the service has taken that', async () => {
    let ofReset: Buffer | string = plainAnswer('422 No', []);
    await start({}, ({ body }, socket) => {
      socket.write(String(body).includes('RESET_CHANNEL') ? ofReset : wholeStream(...EVENTS));
      return undefined;
    });
    const reset = () => bodyOf(pair.say({ action: 'RESET_CHANNEL', text: '', customMessageId: undefined }));
    const elsewhere = { customChannelId: 'c2' };
    for (const message of [{}, elsewhere]) await bodyOf(pair.say(message));
    await reset();
    expect(await bodyOf(pair.byName())).toBe(WHOLE);
    ofReset = wholeStream(...EVENTS);
    await reset();
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(await bodyOf(pair.say(elsewhere))).toBe(WHOLE);
    expect(requests()).toBe(4);
    await bodyOf(pair.say());
    expect(requests()).toBe(5);
  });

  test('not by a reset of another user, if neither names a conversation', async () => {
    await start({}, ALL);
    const cookie = await pair.relay.signIn(OTHER_USER);
    const none = { customChannelId: undefined };
    await bodyOf(pair.say(none));
    await bodyOf(pair.say({ ...none, action: 'RESET_CHANNEL', text: '' }, { cookie }));
    expect(await bodyOf(pair.say(none))).toBe(WHOLE);
    expect(requests()).toBe(2);
  });
});

describe('by its id alone', () => {
  test('nothing is ever sent: with JOIN=off, where each message is a run, of one that nobody knows, as another user', async () => {
    await start({ JOIN: 'off' });
    for (const client of [pair.say(), pair.say()]) await client.waitFor('run.init');
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(requests()).toBe(2);
    await pair.close();
    await start({}, ALL);
    const cookie = await pair.relay.signIn(OTHER_USER);
    const unknown = pair.byName();
    expect(await problemOf(unknown)).toMatchObject({ code: 'run_over', status: 410 });
    await bodyOf(pair.say());
    expect(await problemOf(pair.byName({ cookie }))).toMatchObject({ code: 'run_over' });
    expect(await problemOf(pair.byName({ id: '' }))).toMatchObject({ code: 'invalid_query' });
    expect(requests()).toBe(1);
  });

  test('needs a session, a known bot and its group, and the same origin', async () => {
    await start({ OPERATIONS: 'chat' });
    for (const [options, code] of [
      [{}, 'operation_not_enabled'],
      [{ cookie: 'a=b' }, 'unauthenticated'],
      [{ headers: ['Sec-Fetch-Site: cross-site'] }, 'cross_site_request'],
    ] as const)
      expect(await problemOf(pair.byName(options))).toMatchObject({ code });
  });
});

const SESSION_ENDED = '"code":"session_ended"';
const signOut = (cookie: string, path = '/auth/logout') =>
  call(pair.relay.port, path, { method: 'POST', headers: { Cookie: cookie } });

describe('the end of a session', () => {
  /** A run that the user reads with two sessions; resolves with both cookies and clients. */
  async function twoSessions() {
    const first = await begin();
    const cookie = await pair.relay.signIn();
    const second = pair.say({}, { cookie });
    await second.waitFor('run.init');
    return { cookies: [pair.cookie, cookie] as const, clients: [first, second] as const };
  }

  test('ends the run if nobody else reads it', async () => {
    const { cookies, clients } = await twoSessions();
    await pair.leave(clients[1]);
    expect(pair.service.destroyed).toBe(false);
    await signOut(cookies[0]);
    expect(await bodyOf(clients[0])).toContain(SESSION_ENDED);
    await isGone();
    // Another session of the user gets no answer that has ended with a session.
    await expectOver(cookies[1]);
    expect(requests()).toBe(1);
  });

  test('ends the run that its clients have left, with the session of the last one', async () => {
    const { cookies, clients } = await twoSessions();
    for (const client of clients) await pair.leave(client);
    await signOut(cookies[0]);
    const back = pair.say({}, { cookie: cookies[1] });
    await back.waitFor('run.init');
    await pair.leave(back);
    expect(pair.service.destroyed).toBe(false);
    await signOut(cookies[1]);
    await isGone();
  });

  test('before the stream begins tells its own client that the answer is lost, and the others have it', async () => {
    const first = await beginUnanswered();
    const second = pair.say({}, { cookie: await pair.relay.signIn() });
    await pair.relay.untilOpen(2);
    await signOut(pair.cookie);
    const lost = { code: 'answer_lost', status: 502, maybeStarted: true };
    expect(await errorEventOf(first)).toMatchObject(lost);
    answer();
    expect(await bodyOf(second)).toBe(WHOLE);
    expect(requests()).toBe(1);
  });

  test('by its idle limit ends a run without clients, which is no use of it', async () => {
    pair = await startJoinPair({}, INIT_ONLY, { idleMs: 600_000 });
    const client = pair.say();
    await client.waitFor('run.init');
    await pair.leave(client);
    const expiry = async () => (await stored(pair.relay.parts.sessions, idOf(pair.cookie)))?.idleExpiresAt;
    const before = await expiry();
    advanceClocks({ date: 300_000 });
    const bytes = await pair.relay.runBytes();
    const large = `data: ${'x'.repeat(30_000)}\n\n`;
    pair.emit(large);
    await until(async () => (await pair.relay.runBytes()) >= bytes + large.length);
    expect(await expiry()).toBe(before);
    expect(pair.service.destroyed).toBe(false);
    advanceClocks({ date: 660_000 });
    await isGone();
  });
});

describe('a message whose session ends while its body arrives', () => {
  /** Signs in once more, and out while all but the last bytes of a message have come; resolves with those. */
  async function lateMessage() {
    const cookie = await pair.relay.signIn();
    const text = rawMessage({ cookie, body: messageBody(), headers: ['Connection: close'] });
    const before = await pair.relay.openMessages();
    const client = rawClient(pair.relay.port, text.slice(0, -5));
    late = client;
    await until(async () => (await pair.relay.openMessages()) > before);
    await signOut(cookie);
    return { client, finishBody: () => client.socket.write(text.slice(-5)) };
  }

  test('gets nothing of a run', async () => {
    await begin();
    const { client, finishBody } = await lateMessage();
    finishBody();
    expect(await problemOf(client)).toMatchObject({ status: 401, code: 'session_ended' });
    expect(statusOf(client)).toBe(401);
  });

  test('does not end a run that another session has left', async () => {
    const first = await begin();
    const { client, finishBody } = await lateMessage();
    await pair.leave(first);
    const { service } = pair;
    finishBody();
    await client.closed;
    await pair.say().waitFor('run.init');
    expect(service.destroyed).toBe(false);
  });
});
