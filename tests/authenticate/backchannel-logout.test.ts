import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  type FakeProvider,
  PATHS,
  signInAt,
  signInWith,
  signingKey,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const PATH = '/auth/backchannel-logout';
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' };

let provider: FakeProvider;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(() => {
  jest.restoreAllMocks();
  return provider.close();
});

const post = ({ port }: TestRelay, token: string) =>
  call(port, PATH, {
    method: 'POST',
    headers: FORM,
    body: new URLSearchParams({ logout_token: token }).toString(),
  });
const isLive = async ({ port }: TestRelay, cookie: string) =>
  isSignedIn(await call(port, '/auth/session', { headers: { Cookie: cookie } }));
async function signIn({ port }: TestRelay, claims: Record<string, unknown>): Promise<string> {
  provider.claims = claims;
  const { ended, cookie } = await signInWith(port);
  expect(ended.status).toBe(302);
  return cookie;
}

/** Expects that the token was accepted, and that the answer has no body. */
function expectTaken(answer: Answer): void {
  expect(answer).toMatchObject({ status: 200, body: '' });
  expect(answer.headers['cache-control']).toBe('no-store');
  expect(answer.headers['set-cookie']).toBeUndefined();
}
/** The log line of a logout token's request. */
const lineOf = ({ logLine }: TestRelay, { headers }: Answer) =>
  logLine((line) => line.route === PATH && line.requestId === headers['x-request-id']);
function expectInvalid(answer: Answer): void {
  expectProblem(answer, 400, 'invalid_logout_token');
  expect(answer.headers['set-cookie']).toBeUndefined();
}

describe('a logout token of the provider', () => {
  let relay: TestRelay;
  beforeEach(async () => {
    relay = await startRelay('http://127.0.0.1:9', { ...signInAt(provider.issuer), METRICS_PORT: '1' });
  });
  afterEach(() => relay.close());

  const live = (cookies: string[]) => Promise.all(cookies.map((cookie) => isLive(relay, cookie)));

  const [YES, NO] = [true, false];
  test.each<[string, Record<string, unknown>, boolean[], string]>([
    ['a session of the provider', { sid: 'one' }, [NO, NO, YES, YES, YES], 'sid'],
    ['a user', { sub: 'ada' }, [NO, NO, NO, NO, YES], 'sub'],
    ['both, of which the session counts', { sub: 'ada', sid: 'two' }, [YES, YES, NO, YES, YES], 'sid'],
    ['an unknown session of the provider', { sid: 'ada' }, [YES, YES, YES, YES, YES], 'sid'],
    ['a user without a session', { sub: 'one' }, [YES, YES, YES, YES, YES], 'sub'],
  ])('of %s ends the sessions that began there, and logs how many', async (_what, claims, left, by) => {
    const cookies = [
      await signIn(relay, { sub: 'ada', sid: 'one' }),
      await signIn(relay, { sub: 'ada', sid: 'one' }),
      await signIn(relay, { sub: 'ada', sid: 'two' }),
      await signIn(relay, { sub: 'ada' }),
      await signIn(relay, { sub: 'bob', sid: 'three' }),
    ];
    const answer = await post(relay, await provider.logoutToken(claims));
    expectTaken(answer);
    expect(await live(cookies)).toEqual(left);
    const line = await lineOf(relay, answer);
    const ended = left.filter((isLeft) => !isLeft).length;
    expect(line).toMatchObject({ status: 200, outcome: 'ok', sessionsEnded: ended, sessionsEndedBy: by });
    for (const name of Object.values(claims)) expect(Object.values(line)).not.toContain(name);
  });

  test.each<[string, Record<string, unknown>]>([
    ['a session of the provider', { sid: 'one' }],
    ['a user', { sub: 'ada' }],
  ])('of %s also ends a sign-in that is under way, but none that begins later', async (_what, named) => {
    provider.claims = { sub: 'ada', sid: 'one' };
    provider.idToken = async (claims) => {
      expectTaken(await post(relay, await provider.logoutToken(named)));
      return provider.sign(claims);
    };
    const { ended, cookie } = await signInWith(relay.port);
    expectProblem(ended, 400, 'sign_in_failed');
    expect(await isLive(relay, cookie)).toBe(false);
    expect(relay.logs.filter(({ cause }) => cause === 'signed_out_meanwhile')).toHaveLength(1);
    provider.idToken = (claims) => provider.sign(claims);
    expect(await isLive(relay, await signIn(relay, { sub: 'ada', sid: 'one' }))).toBe(true);
  });

  test('does not end the sign-in of another user that is under way', async () => {
    provider.claims = { sub: 'bob', sid: 'two' };
    provider.idToken = async (claims) => {
      for (const named of [{ sub: 'ada' }, { sid: 'one' }, { sub: 'two' }, { sid: 'bob' }])
        expectTaken(await post(relay, await provider.logoutToken(named)));
      return provider.sign(claims);
    };
    expect((await signInWith(relay.port)).ended.status).toBe(302);
  });

  test('is accepted only once', async () => {
    const token = await provider.logoutToken({ sub: 'ada' });
    expectTaken(await post(relay, token));
    const again = await signIn(relay, { sub: 'ada' });
    expectInvalid(await post(relay, token));
    // Its id counts, not its text.
    expectInvalid(await post(relay, await provider.logoutToken({ sub: 'ada', jti: jtiOf(token) })));
    expect(await isLive(relay, again)).toBe(true);
    expect((await lineOf(relay, await post(relay, token))).sessionsEnded).toBeUndefined();
    const replays = relay.logs.filter(({ route, cause }) => route === PATH && cause === 'replayed');
    expect(replays).toHaveLength(3);
  });

  test.each(['', 'x=y', 'logout_token=', 'logout_token'])(
    'is refused with the cause no_token if the form is "%s"',
    async (body) => {
      const answer = await call(relay.port, PATH, { method: 'POST', headers: FORM, body });
      expectInvalid(answer);
      expect(await lineOf(relay, answer)).toMatchObject({ level: 'info', cause: 'no_token' });
      expect(provider.requests).toEqual([]);
    },
  );

  test('that is signed with a new key is accepted', async () => {
    await signIn(relay, { sub: 'ada' });
    const next = await signingKey('next');
    Object.assign(provider, { published: [provider.signer, next], signer: next });
    expectTaken(await post(relay, await provider.logoutToken({ sub: 'ada' })));
  });

  test('is answered with 503 while the keys are not available, and accepted when it is sent again', async () => {
    provider.answers = { [PATHS.keys]: (_req, res) => void res.writeHead(500).end() };
    const token = await provider.logoutToken({ sub: 'ada' });
    expectProblem(await post(relay, token), 503, 'identity_provider_unavailable');
    provider.answers = {};
    expectTaken(await post(relay, token));
  });

  test('must be sent as a form by POST, and must not be too large', async () => {
    const token = await provider.logoutToken({ sub: 'ada' });
    const body = `logout_token=${token}`;
    const sent = (headers: Record<string, string>, text = body, method = 'POST') =>
      call(relay.port, PATH, { method, headers, body: text });
    expectProblem(await sent({ 'Content-Type': 'application/json' }), 415, 'unsupported_media_type');
    expectProblem(await sent({}), 415, 'unsupported_media_type');
    expectProblem(await sent({ ...FORM, 'Content-Encoding': 'gzip' }), 415, 'unsupported_media_type');
    expectProblem(await sent(FORM, `${body}&x=${'y'.repeat(17_000)}`), 413, 'body_too_large');
    expectProblem(await sent(FORM, '', 'GET'), 405, 'method_not_allowed');
    expectInvalid(await sent(FORM, `x=${token}`));
    expectTaken(await sent({ 'Content-Type': 'Application/X-WWW-Form-URLencoded; charset=utf-8' }));
  });

  test('neither uses the session of the caller nor begins one', async () => {
    const cookie = await signIn(relay, { sub: 'bob' });
    const operations = async () =>
      [...(await relay.metricsText()).matchAll(/^bot_relay_session_operations_total\{.*$/gm)].map(
        ([line]) => line,
      );
    const before = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    const counted = await operations();
    const answer = await call(relay.port, PATH, {
      method: 'POST',
      headers: { ...FORM, Cookie: cookie },
      body: 'logout_token=x',
    });
    expectInvalid(answer);
    expect(await operations()).toEqual(counted);
    const after = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(after.body).toBe(before.body);
  });

  test('with an unknown key causes few requests to the provider, however many tokens are sent', async () => {
    await signIn(relay, { sub: 'ada' });
    const good = provider.signer;
    provider.signer = await signingKey('stranger');
    const forged = await provider.logoutToken({ sub: 'ada' });
    provider.signer = good;
    // Until all tokens are sent, a busy machine may take longer than the relay waits for its provider.
    jest.spyOn(AbortSignal, 'timeout').mockImplementation(() => new AbortController().signal);
    const [before, from] = [provider.asked(PATHS.keys), performance.now()];
    const { promise: answered, resolve: answerAll } = Promise.withResolvers<void>();
    // The first request of the relay is held, so that many tokens come meanwhile.
    provider.answers = {
      [PATHS.keys]: (_req, res) => void answered.then(() => res.end(JSON.stringify({ keys: [good.jwk] }))),
    };
    const sendThree = async () => {
      for (let sent = 0; sent < 3; sent += 1) expectInvalid(await post(relay, forged));
    };
    const all = Array.from({ length: 100 }, sendThree);
    await until(() => provider.asked(PATHS.keys) > before);
    expectNobody(await call(relay.port, '/auth/session'));
    answerAll();
    await Promise.all(all);
    // One in each second, with the first at once; a timer may be early by a few milliseconds.
    const most = 1 + Math.floor((performance.now() - from + 50) / 1_000);
    expect(provider.asked(PATHS.keys) - before).toBeLessThanOrEqual(most);
  });
});

const jtiOf = (token: string) =>
  JSON.parse(Buffer.from(token.split('.')[1] as string, 'base64url').toString()).jti as string;

describeWithRedis('a logout token at one of several instances', () => {
  let all: Instances;
  beforeEach(async () => {
    all = await startInstances({ count: 2, shared: true, environment: signInAt(provider.issuer) });
  });
  afterEach(() => all.close());
  const at = (which: number) => all.relays[which] as TestRelay;

  test.each([
    ['of a session of the provider', { sid: 'one' }],
    ['of a user', { sub: 'ada' }],
  ])('%s ends the open streams at the other instances, and none of other users', async (_what, claims) => {
    const [adas, bobs] = [
      await signIn(at(0), { sub: 'ada', sid: 'one' }),
      await signIn(at(0), { sub: 'bob', sid: 'two' }),
    ];
    const [ends, stays] = [await all.stream(1, adas), await all.stream(1, bobs)];
    const over = ends.over();
    const answer = await post(at(0), await provider.logoutToken(claims));
    expectTaken(answer);
    expect(await lineOf(at(0), answer)).toMatchObject({ sessionsEnded: 1 });
    expect(await over).toMatchObject({ code: 'session_ended', complete: true });
    expect(await isLive(at(1), adas)).toBe(false);
    stays.event('data: still here\n\n');
    await stays.client.waitFor('still here');
    expect(await isLive(at(1), bobs)).toBe(true);
  });

  test('is refused by the other instances when it is sent again', async () => {
    const token = await provider.logoutToken({ sub: 'ada' });
    expectTaken(await post(at(0), token));
    const cookie = await signIn(at(1), { sub: 'ada' });
    expectInvalid(await post(at(1), token));
    expectInvalid(await post(at(0), token));
    expect(await isLive(at(0), cookie)).toBe(true);
    // Remembered for as long as it could be valid, and not for ever.
    const { command } = all.redis as RedisServer;
    const [name, ...more] = (await command('KEYS', 'bot-relay:limit:logout-token:*')) as string[];
    expect(more).toEqual([]);
    expect(Number(await command('PTTL', name as string))).toBeGreaterThan(180_000);
    expect(Number(await command('PTTL', name as string))).toBeLessThanOrEqual(240_000);
  });
});

describeWithRedis('a logout token while the store is out of reach', () => {
  test('is answered with 503, and accepted when it is sent again', async () => {
    const all = await startInstances({
      count: 1,
      shared: true,
      wired: true,
      environment: signInAt(provider.issuer),
    });
    const relay = all.relays[0] as TestRelay;
    const cookie = await signIn(relay, { sub: 'ada' });
    const token = await provider.logoutToken({ sub: 'ada' });
    all.wire?.cut();
    expectProblem(await post(relay, token), 503, 'session_store_unavailable');
    all.wire?.mend();
    await until(async () => (await relay.redis?.answers()) === true);
    expect(await isLive(relay, cookie)).toBe(true);
    expectTaken(await post(relay, token));
    expect(await isLive(relay, cookie)).toBe(false);
    await all.close();
  });
});
