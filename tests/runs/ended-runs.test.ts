import { afterEach, describe, expect, test } from '@jest/globals';
import {
  bodyOf,
  DELTA,
  EVENTS,
  INIT,
  type JoinPair,
  KEPT,
  problemOf,
  startJoinPair,
  statusOf,
  WHOLE,
} from '../harness/clients/joining.ts';
import { dechunk } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { OTHER_USER } from '../harness/relay/relay.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

let pair: JoinPair;
afterEach(() => pair.close());

/** A service that answers each message with a whole stream at once. */
async function start(environment: Record<string, string> = {}) {
  pair = await startJoinPair(environment, (_request, socket) => {
    socket.write(wholeStream(...EVENTS));
    return undefined;
  });
}

describe('the same message after the end of its run', () => {
  test('gets the whole stream again', async () => {
    await start();
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    expect(await bodyOf(pair.byName())).toBe(WHOLE);
    expect(pair.relay.runs.bytes()).toBeGreaterThan(0);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('gets run_over once its answer is not kept any more', async () => {
    await start({ JOIN_KEEP_MS: '1' });
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    await until(() => pair.relay.runs.bytes() === 0);
    const late = pair.say();
    expect(await problemOf(late)).toMatchObject({ code: 'run_over', retryable: false });
    expect(statusOf(late)).toBe(410);
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('runs again when all is forgotten', async () => {
    await start({ JOIN_KEEP_MS: '1', JOIN_REMEMBER_MS: '1' });
    expect(await bodyOf(pair.say())).toBe(WHOLE);
    await until(async () => (await bodyOf(pair.say())) === WHOLE && pair.runs().length === 2);
  });

  test.each([
    ['a consent', { action: 'RESPONSE_TOOL_CALL_CONSENT', toolCallConsents: [] }],
    ['a nudge', { text: '' }],
    ['a reset', { action: 'RESET_CHANNEL' }],
    ['a message with a short id', { customMessageId: 'm-1' }],
  ])('runs again if it is %s', async (_what, changes) => {
    await start();
    for (const count of [1, 2]) {
      expect(await bodyOf(pair.say(changes))).toBe(WHOLE);
      expect(pair.upstream.requests).toHaveLength(count);
    }
    const id = 'customMessageId' in changes ? { id: changes.customMessageId } : {};
    expect(await problemOf(pair.byName(id))).toMatchObject({ code: 'run_over' });
    expect(pair.relay.runs.bytes()).toBe(0);
  });

  test('does not run again if it has only files', async () => {
    await start();
    for (let n = 0; n < 2; n++) expect(await bodyOf(pair.say({ text: '', blobIds: ['b'] }))).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('ends as it did, where the service has broken the stream', async () => {
    pair = await startJoinPair({ RESUME_UPSTREAM: 'off' }, () => [INIT, DELTA]);
    const first = pair.say();
    await first.waitFor('message.delta');
    pair.service.destroy();
    const parts = [await bodyOf(first), await bodyOf(pair.say())].map((body) => body.split('event: error'));
    for (const [events, error] of parts) {
      expect(events).toBe(INIT + DELTA);
      expect(error).toContain('"code":"upstream_stream_broken"');
    }
    expect(pair.upstream.requests).toHaveLength(1);
    // A resumption is not answered from a stream that broke.
    const resumption = pair.say({}, { headers: ['Last-Event-ID: 7'] });
    await resumption.waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
  });

  test('is over, where its stream was cut inside an event too large to hold', async () => {
    const half = `data: ${'x'.repeat(70_000)}`;
    pair = await startJoinPair({}, () => [INIT, half]);
    const [first, beside] = [pair.say(), pair.say()];
    await Promise.all([first.waitFor('xxx'), beside.waitFor('xxx')]);
    pair.service.destroy();
    await Promise.all([first.closed, beside.closed]);
    for (const { text } of [first, beside]) expect(dechunk(text())).toMatchObject({ complete: false });
    for (const client of [pair.say(), pair.byName()])
      expect(await problemOf(client)).toMatchObject({ code: 'run_over' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('has what went down of a stream that was healed', async () => {
    let requests = 0;
    pair = await startJoinPair({}, (_request, socket) => {
      if (requests++ === 0) {
        return [`retry: 1\n${INIT}`, KEPT, DELTA];
      }
      socket.write(wholeStream(DELTA, ...EVENTS.slice(3)));
      return undefined;
    });
    const whole = `retry: 1\n${INIT}${KEPT}${DELTA}${EVENTS.slice(3).join('')}`;
    const first = pair.say();
    await first.waitFor(DELTA);
    pair.service.destroy();
    expect(await bodyOf(first)).toBe(whole);
    expect(await bodyOf(pair.say())).toBe(whole);
    expect(pair.runs()).toHaveLength(1);
    expect(pair.upstream.requests).toHaveLength(2);
  });
});

describe('a consent', () => {
  test('is its own run, with the id of the message whose run still waits for it', async () => {
    pair = await startJoinPair({}, () => [INIT]);
    const message = pair.say();
    await message.waitFor('run.init');
    const consent = { action: 'RESPONSE_TOOL_CALL_CONSENT', text: '', toolCallConsents: [{ id: 'a' }] };
    await pair.say(consent).waitFor('run.init');
    expect(pair.upstream.requests).toHaveLength(2);
    pair.emit(DELTA);
    await pair.byName().waitFor('message.delta');
    expect(message.text()).not.toContain('message.delta');
  });
});

describe('the names of a conversation are forgotten', () => {
  test('by a message that resets it, once the service has taken that', async () => {
    let answer: Buffer | string = plainAnswer('422 No', []);
    pair = await startJoinPair({}, ({ body }, socket) => {
      socket.write(String(body).includes('RESET_CHANNEL') ? answer : wholeStream(...EVENTS));
      return undefined;
    });
    await bodyOf(pair.say());
    await bodyOf(pair.say({ action: 'RESET_CHANNEL', text: '', customMessageId: 'reset-000000000001' }));
    expect(await bodyOf(pair.byName())).toBe(WHOLE);
    answer = wholeStream(...EVENTS);
    await bodyOf(pair.say({ action: 'RESET_CHANNEL', text: '', customMessageId: undefined }));
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(pair.relay.runs.bytes()).toBe(0);
    await bodyOf(pair.say());
    expect(pair.upstream.requests).toHaveLength(4);
  });

  test('not by a reset of another user, if neither names a conversation', async () => {
    await start();
    const cookie = await pair.relay.signIn(OTHER_USER);
    const none = { customChannelId: undefined };
    await bodyOf(pair.say(none));
    await bodyOf(pair.say({ ...none, action: 'RESET_CHANNEL', text: '' }, { cookie }));
    expect(await bodyOf(pair.say(none))).toBe(WHOLE);
    expect(pair.upstream.requests).toHaveLength(2);
  });
});

describe('by its id alone', () => {
  test('nothing is ever sent: with JOIN=off, after a restart, as another user', async () => {
    await start({ JOIN: 'off' });
    await bodyOf(pair.say());
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'run_over' });
    expect(pair.upstream.requests).toHaveLength(1);
    await pair.close();
    await start();
    const cookie = await pair.relay.signIn(OTHER_USER);
    const restarted = pair.byName();
    expect(await problemOf(restarted)).toMatchObject({ code: 'run_over' });
    expect(statusOf(restarted)).toBe(410);
    await bodyOf(pair.say());
    expect(await problemOf(pair.byName({ cookie }))).toMatchObject({ code: 'run_over' });
    expect(await problemOf(pair.byName({ id: '' }))).toMatchObject({ code: 'invalid_query' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('needs a session, a known bot and its group, and the same origin', async () => {
    await start({ OPERATIONS: 'chat' });
    expect(await problemOf(pair.byName())).toMatchObject({ code: 'operation_not_enabled' });
    expect(await problemOf(pair.byName({ cookie: 'a=b' }))).toMatchObject({ code: 'unauthenticated' });
    expect(await problemOf(pair.byName({ headers: ['Sec-Fetch-Site: cross-site'] }))).toMatchObject({
      code: 'cross_site_request',
    });
  });
});
