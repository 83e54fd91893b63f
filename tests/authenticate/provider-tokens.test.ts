import { createHmac } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { exportSPKI, type JWTPayload } from 'jose';
import { type Session, sessionKey } from '../../src/authenticate/sessions/session.ts';
import { type Answer, call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, type RedisServer } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';
import {
  BACKCHANNEL_EVENT,
  FAKE_CLIENT,
  type FakeProvider,
  PATHS,
  type SigningKey,
  seconds,
  signInAt,
  signInWith,
  signingKey,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const PATH = '/auth/backchannel-logout';
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' };
const END = 'http://127.0.0.1:9/end?tenant=one';
const CLEARED = /^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/;

const keys: Record<string, SigningKey> = {};
const keyNamed = (name: string) => keys[name] as SigningKey;
let provider: FakeProvider;
let relay: TestRelay;
/** What the provider does if a test changes nothing. */
let usual: FakeProvider;
/** By how much the clock is ahead, in ms. */
let ahead = 0;
beforeAll(async () => {
  provider = await startFakeProvider();
  for (const alg of ['ES256', 'PS256', 'RS256', 'ES384']) keys[alg] = await signingKey(`of-${alg}`, alg);
  keys.stranger = await signingKey('stranger');
  provider.published = [provider.signer, ...['ES256', 'PS256', 'RS256', 'ES384'].map(keyNamed)];
  // The metadata allows these, so that only the relay itself can refuse one.
  provider.metadata.id_token_signing_alg_values_supported = ['RS256', 'PS256', 'ES256', 'HS256', 'none'];
  provider.metadata.end_session_endpoint = END;
  relay = await startRelay('http://127.0.0.1:9', signInAt(provider.issuer));
  usual = { ...provider };
});
beforeEach(async () => {
  Object.assign(provider, usual);
  for (const name of ['ada', 'bob']) await relay.parts.sessions.removeUser(name);
});
afterEach(() => void jest.restoreAllMocks());
afterAll(async () => {
  await relay.close();
  await provider.close();
});

/** Lets so much time pass that the provider may be asked for its keys again. `date` moves the clock of the day, too. */
function pass(ms = 1_001, date = 0): void {
  ahead += ms;
  advanceClocks({ date, monotonic: ahead });
}
const isLive = async (Cookie: string, { port } = relay) =>
  isSignedIn(await call(port, '/auth/session', { headers: { Cookie } }));
async function signIn(claims: Record<string, unknown>, { port } = relay): Promise<string> {
  provider.claims = claims;
  const { ended, cookie } = await signInWith(port);
  expect(ended.status).toBe(302);
  provider.claims = {};
  return cookie;
}
const post = (token: string, { port } = relay) =>
  call(port, PATH, {
    method: 'POST',
    headers: FORM,
    body: new URLSearchParams({ logout_token: token }).toString(),
  });
/** Expects that the token was accepted, and that the answer has no body. */
function expectTaken(answer: Answer): void {
  expect(answer).toMatchObject({ status: 200, body: '' });
  expect(answer.headers['cache-control']).toBe('no-store');
  expect(answer.headers['set-cookie']).toBeUndefined();
}
function expectInvalid(answer: Answer): void {
  expectProblem(answer, 400, 'invalid_logout_token');
  expect(answer.headers['set-cookie']).toBeUndefined();
}
/** The log line of a logout token's request. */
const lineOf = ({ headers }: Answer, { logLine } = relay) =>
  logLine((line) => line.route === PATH && line.requestId === headers['x-request-id']);

/** Expects that the ID token signs nobody in. A fault that only the provider or its settings can have caused is a warning. */
async function expectNoSignIn(cause: string, level = 'warn'): Promise<void> {
  const { ended, cookie } = await signInWith(relay.port);
  const { requestId } = expectProblem(ended, 400, 'sign_in_failed');
  expect(await isLive(cookie)).toBe(false);
  const isTold = (line: Record<string, unknown>) =>
    line.route === '/auth/callback' && line.requestId === requestId;
  await relay.logLine(isTold);
  expect(relay.logs.filter(isTold)).toEqual([
    expect.objectContaining({ level, outcome: 'sign_in_failed', cause }),
  ]);
}
async function expectSignIn(): Promise<void> {
  const { ended, cookie } = await signInWith(relay.port);
  expect([ended.status, await isLive(cookie)]).toEqual([302, true]);
}
/** Sends a logout token that `make` makes from the claims of a good one; whether it is taken, and ends the session of Ada. */
async function expectLogout(
  make: (claims: JWTPayload, header: object) => Promise<string> | string,
  isTaken: boolean,
) {
  const { cookie } = await signInWith(relay.port);
  const good = await provider.logoutToken({ sub: 'ada' });
  const [header, claims] = good.split('.').map((part) => Buffer.from(part, 'base64url').toString());
  const token = await make(JSON.parse(claims ?? ''), { typ: JSON.parse(header ?? '').typ });
  const answer = await post(token);
  if (isTaken) expectTaken(answer);
  else expectInvalid(answer);
  Object.assign(provider, usual);
  expect(await isLive(cookie)).toBe(!isTaken);
}

const COMPARED = 'OAUTH_JWT_CLAIM_COMPARISON_FAILED';
const MISSING = 'OAUTH_INVALID_RESPONSE';
const TIMES = 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED';
const INVALID = 'ERR_JWT_CLAIM_VALIDATION_FAILED';
const BOTH = [FAKE_CLIENT.id, 'another'];

type Claims = () => Record<string, unknown>;

describe('an ID token and a logout token', () => {
  test.each<[string, Claims, string]>([
    ['of another issuer', () => ({ iss: 'http://127.0.0.1:1' }), COMPARED],
    ['without an issuer', () => ({ iss: undefined }), MISSING],
    ['for another client', () => ({ aud: 'another' }), COMPARED],
    ['without an audience', () => ({ aud: undefined }), MISSING],
    ['for this and another client', () => ({ aud: BOTH }), COMPARED],
    ['for two clients, issued to the other one', () => ({ aud: BOTH, azp: 'another' }), COMPARED],
    ['issued to another client', () => ({ azp: 'another' }), INVALID],
    ['that expired 2 minutes ago', () => ({ iat: seconds(-150), exp: seconds(-120) }), TIMES],
    ['that is dated 2 minutes ahead', () => ({ iat: seconds(120), exp: seconds(420) }), INVALID],
    ['that becomes valid in 2 minutes', () => ({ nbf: seconds(120) }), TIMES],
    ['without a date', () => ({ iat: undefined }), MISSING],
  ])('%s are refused', async (_what, claims, cause) => {
    provider.claims = claims();
    await expectNoSignIn(cause);
    provider.claims = {};
    await expectLogout((good, header) => provider.sign({ ...good, ...claims() }, header as never), false);
  });

  test.each<[string, Claims]>([
    ['that expired 20 seconds ago', () => ({ iat: seconds(-100), exp: seconds(-20) })],
    ['that are dated 20 seconds ahead', () => ({ iat: seconds(20), nbf: seconds(20) })],
    ['for this client, as a list', () => ({ aud: [FAKE_CLIENT.id] })],
    ['for several clients, but issued to this one', () => ({ aud: BOTH, azp: FAKE_CLIENT.id })],
  ])('%s are accepted', async (_what, claims) => {
    provider.claims = claims();
    await expectSignIn();
    provider.claims = {};
    await expectLogout((good, header) => provider.sign({ ...good, ...claims() }, header as never), true);
  });

  const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signedBy = (header: object, claims: JWTPayload, secret?: string) => {
    const text = `${base64(header)}.${base64(claims)}`;
    return `${text}.${secret === undefined ? '' : createHmac('sha256', secret).update(text).digest('base64url')}`;
  };
  const UNKNOWN = 'ERR_JWKS_NO_MATCHING_KEY';
  const FORGED = 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED';
  const UNSUPPORTED = 'ERR_JOSE_NOT_SUPPORTED';
  const signedWith = (key: SigningKey, claims: JWTPayload, header: object) => {
    provider.signer = key;
    return provider.sign(claims, { ...header });
  };
  const stranger = () => ({ ...keyNamed('stranger'), kid: usual.signer.kid });
  test.each<[string, string, (claims: JWTPayload, header: object) => Promise<string> | string]>([
    [
      'whose content was changed',
      FORGED,
      async (claims, header) => {
        const [head, , signature] = (await provider.sign({ ...claims, sub: 'root' }, { ...header })).split(
          '.',
        );
        return [head, base64(claims), signature].join('.');
      },
    ],
    ['of another key with the id of a valid one', FORGED, (...of) => signedWith(stranger(), ...of)],
    [
      'that bring their own key',
      FORGED,
      (claims, header) => signedWith(stranger(), claims, { ...header, jwk: keyNamed('stranger').jwk }),
    ],
    ['of a key that the provider does not have', UNKNOWN, (...of) => signedWith(keyNamed('stranger'), ...of)],
    ['that are not signed', UNSUPPORTED, (claims, header) => signedBy({ ...header, alg: 'none' }, claims)],
    [
      'that are signed with the client secret',
      UNSUPPORTED,
      (claims, header) => signedBy({ ...header, alg: 'HS256' }, claims, FAKE_CLIENT.secret),
    ],
    [
      'that are signed with the public key as if it were a secret',
      UNSUPPORTED,
      async (claims, header) => {
        const { kid, publicKey } = usual.signer;
        return signedBy({ ...header, alg: 'HS256', kid }, claims, await exportSPKI(publicKey));
      },
    ],
    [
      'that are signed by an algorithm that the metadata does not name',
      'OAUTH_INVALID_RESPONSE',
      (...of) => signedWith(keyNamed('ES384'), ...of),
    ],
  ])('%s are refused', async (_what, cause, make) => {
    provider.idToken = (claims) => make(claims, {});
    // An unknown key is looked for at the provider, once in a second.
    pass();
    await expectNoSignIn(cause);
    Object.assign(provider, usual);
    pass();
    await expectLogout(make, false);
  });

  test.each(['ES256', 'PS256', 'RS256'])(
    'that are signed with a key of the provider, by %s, are accepted',
    async (alg) => {
      provider.signer = keyNamed(alg);
      await expectSignIn();
      await expectLogout((...of) => signedWith(keyNamed(alg), of[0], of[1]), true);
    },
  );
});

describe('an ID token', () => {
  test.each<[string, Claims, string, string]>([
    ['without a nonce', () => ({ nonce: undefined }), MISSING, 'warn'],
    // Users can cause this.
    ['with the nonce of another sign-in', () => ({ nonce: 'another' }), COMPARED, 'info'],
    ['without an exp claim', () => ({ exp: undefined }), MISSING, 'warn'],
    ['that is dated 2 hours back', () => ({ iat: seconds(-7200) }), 'ERR_JWT_EXPIRED', 'warn'],
    ['without a subject', () => ({ sub: undefined }), MISSING, 'warn'],
    ['whose subject contains a header', () => ({ sub: 'ada\r\nx: y' }), 'bad_subject', 'warn'],
  ])('%s is refused', async (_what, claims, cause, level) => {
    provider.claims = claims();
    await expectNoSignIn(cause, level);
  });

  test('that is dated back by 5 minutes, as some providers do, is accepted', async () => {
    provider.claims = { iat: seconds(-300), nbf: seconds(-300) };
    await expectSignIn();
  });

  test('is required', async () => {
    const body = JSON.stringify({ access_token: 'a', token_type: 'Bearer' });
    provider.answers = {
      [PATHS.token]: (_req, res) => void res.setHeader('Content-Type', 'application/json').end(body),
    };
    await expectNoSignIn('OAUTH_INVALID_RESPONSE');
  });
});

describe('a logout token', () => {
  test.each<[string, Claims]>([
    ['with a nonce that is null', () => ({ nonce: null })],
    ['without an event', () => ({ events: undefined })],
    ['of another event', () => ({ events: { 'http://schemas.openid.net/event/other': {} } })],
    ['whose event is not an object', () => ({ events: { [BACKCHANNEL_EVENT]: true } })],
    ['whose events are a list', () => ({ events: [BACKCHANNEL_EVENT] })],
    ['without a user and a session', () => ({ sub: undefined, sid: undefined })],
    ['of an empty user', () => ({ sub: '' })],
    ['of 4 minutes ago', () => ({ iat: seconds(-240) })],
    ['of an empty session', () => ({ sid: '' })],
    ['without an id', () => ({ jti: undefined })],
    ['with an empty id', () => ({ jti: '' })],
    ['with an id that is too long', () => ({ jti: 'x'.repeat(513) })],
  ])('%s is refused', async (_what, claims) => {
    await expectLogout(
      (good, header) => provider.sign({ ...good, ...claims() } as JWTPayload, header as never),
      false,
    );
  });

  test('without an exp claim is accepted', async () => {
    await expectLogout(({ exp: _, ...claims }, header) => provider.sign(claims, header as never), true);
  });

  test('must be one: no other text, and no ID token', async () => {
    await expectLogout(() => 'no.token.atall', false);
    for (const nonce of [{ nonce: 'n' }, {}])
      await expectLogout(
        ({ events: _, ...claims }) => provider.sign({ ...claims, sid: 'one', ...nonce }),
        false,
      );
  });
});

describe('a logout token of the provider', () => {
  const [YES, NO] = [true, false];
  test.each<[string, Record<string, unknown>, boolean[], string]>([
    ['a session of the provider', { sid: 'one' }, [NO, NO, YES, YES, YES], 'sid'],
    ['a user', { sub: 'ada' }, [NO, NO, NO, NO, YES], 'sub'],
    ['both, of which the session counts', { sub: 'ada', sid: 'two' }, [YES, YES, NO, YES, YES], 'sid'],
    ['an unknown session of the provider', { sid: 'ada' }, [YES, YES, YES, YES, YES], 'sid'],
  ])('of %s ends the sessions that began there, and logs how many', async (_what, claims, left, by) => {
    const cookies = [
      await signIn({ sub: 'ada', sid: 'one' }),
      await signIn({ sub: 'ada', sid: 'one' }),
      await signIn({ sub: 'ada', sid: 'two' }),
      await signIn({ sub: 'ada' }),
      await signIn({ sub: 'bob', sid: 'three' }),
    ];
    const answer = await post(await provider.logoutToken(claims));
    expectTaken(answer);
    expect(await Promise.all(cookies.map((cookie) => isLive(cookie)))).toEqual(left);
    const line = await lineOf(answer);
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
      expectTaken(await post(await provider.logoutToken(named)));
      return provider.sign(claims);
    };
    const { ended, cookie } = await signInWith(relay.port);
    expectProblem(ended, 400, 'sign_in_failed');
    expect(await isLive(cookie)).toBe(false);
    const { 'x-request-id': id } = ended.headers;
    const line = await relay.logLine(({ msg, requestId }) => msg === 'request' && requestId === id);
    expect(line.cause).toBe('signed_out_meanwhile');
    provider.idToken = usual.idToken;
    expect(await isLive(await signIn({ sub: 'ada', sid: 'one' }))).toBe(true);
  });

  test('does not end the sign-in of another user that is under way', async () => {
    provider.idToken = async (claims) => {
      for (const named of [{ sub: 'ada' }, { sid: 'one' }, { sub: 'two' }, { sid: 'bob' }])
        expectTaken(await post(await provider.logoutToken(named)));
      return provider.sign(claims);
    };
    expect(await isLive(await signIn({ sub: 'bob', sid: 'two' }))).toBe(true);
  });

  test('is accepted only once: its id counts, not its text', async () => {
    const token = await provider.logoutToken({ sub: 'ada' });
    expectTaken(await post(token));
    const again = await signIn({ sub: 'ada' });
    const { jti } = JSON.parse(Buffer.from(token.split('.')[1] as string, 'base64url').toString());
    for (const other of [token, await provider.logoutToken({ sub: 'ada', jti })]) {
      const answer = await post(other);
      expectInvalid(answer);
      const line = await lineOf(answer);
      expect([line.cause, line.sessionsEnded]).toEqual(['replayed', undefined]);
    }
    expect(await isLive(again)).toBe(true);
  });

  test('is answered with 503 while the keys are not available, and accepted when it is sent again', async () => {
    const token = await provider.logoutToken({ sub: 'ada' });
    provider.answers = { [PATHS.keys]: (_req, res) => void res.writeHead(500).end() };
    // The keys that the relay has are old then.
    pass(11 * 60_000, 11 * 60_000);
    expectProblem(await post(token), 503, 'identity_provider_unavailable');
    provider.answers = {};
    pass();
    expectTaken(await post(token));
  });

  test('must be sent as a form by POST, and must not be missing or too large', async () => {
    const body = `logout_token=${await provider.logoutToken({ sub: 'ada' })}`;
    const sent = (headers: Record<string, string>, text = body, method = 'POST') =>
      call(relay.port, PATH, { method, headers, body: text });
    expectProblem(await sent({ 'Content-Type': 'application/json' }), 415, 'unsupported_media_type');
    expectProblem(await sent({ ...FORM, 'Content-Encoding': 'gzip' }), 415, 'unsupported_media_type');
    expectProblem(await sent(FORM, `${body}&x=${'y'.repeat(17_000)}`), 413, 'body_too_large');
    expectProblem(await sent(FORM, '', 'GET'), 405, 'method_not_allowed');
    for (const text of [`x${body}`, 'logout_token=']) {
      const answer = await sent(FORM, text);
      expectInvalid(answer);
      expect(await lineOf(answer)).toMatchObject({ level: 'info', cause: 'no_token' });
    }
    expectTaken(await sent({ 'Content-Type': 'Application/X-WWW-Form-URLencoded; charset=utf-8' }));
  });

  test('neither uses the session of the caller nor begins one', async () => {
    const headers = { ...FORM, Cookie: await signIn({ sub: 'bob' }) };
    const session = async () => (await call(relay.port, '/auth/session', { headers })).body;
    const before = await session();
    expectInvalid(await call(relay.port, PATH, { method: 'POST', headers, body: 'logout_token=x' }));
    expect(await session()).toBe(before);
  });
});

describeWithRedis('a logout token at one of several instances', () => {
  let all: Instances;
  beforeAll(async () => {
    const environment = signInAt(provider.issuer);
    all = await startInstances({ count: 2, shared: true, wired: true, environment });
  });
  afterAll(() => all.close());
  const at = (which: number) => all.relays[which] as TestRelay;

  test.each([
    ['of a session of the provider', { sid: 'one' }],
    ['of a user', { sub: 'ada' }],
  ])('%s ends the open streams at the other instances, and none of other users', async (_what, claims) => {
    const adas = await signIn({ sub: 'ada', sid: 'one' }, at(0));
    const bobs = await signIn({ sub: 'bob', sid: 'two' }, at(0));
    const [ends, stays] = [await all.stream(1, adas), await all.stream(1, bobs)];
    const over = ends.over();
    const answer = await post(await provider.logoutToken(claims), at(0));
    expectTaken(answer);
    expect(await lineOf(answer, at(0))).toMatchObject({ sessionsEnded: 1 });
    expect(await over).toMatchObject({ code: 'session_ended', complete: true });
    expect(await isLive(adas, at(1))).toBe(false);
    stays.event('data: still here\n\n');
    await stays.client.waitFor('still here');
    expect(await isLive(bobs, at(1))).toBe(true);
  });

  test('is refused by the other instances when it is sent again', async () => {
    const { command } = all.redis as RedisServer;
    await command('FLUSHALL');
    const token = await provider.logoutToken({ sub: 'ada' });
    expectTaken(await post(token, at(0)));
    const cookie = await signIn({ sub: 'ada' }, at(1));
    for (const one of all.relays) expectInvalid(await post(token, one));
    expect(await isLive(cookie, at(0))).toBe(true);
    // Remembered for as long as it could be valid, and not for ever.
    const [name, ...more] = (await command('KEYS', 'bot-relay:limit:logout-token:*')) as string[];
    expect(more).toEqual([]);
    expect(Number(await command('PTTL', name as string))).toBeGreaterThan(180_000);
    expect(Number(await command('PTTL', name as string))).toBeLessThanOrEqual(240_000);
  });

  test('is answered with 503 while the store is out of reach, and accepted when it is sent again', async () => {
    const cookie = await signIn({ sub: 'ada' }, at(1));
    const token = await provider.logoutToken({ sub: 'ada' });
    all.wire?.cut();
    expectProblem(await post(token, at(1)), 503, 'session_store_unavailable');
    all.wire?.mend();
    await until(async () => (await at(1).parts.redis?.answers()) === true);
    expect(await isLive(cookie, at(1))).toBe(true);
    expectTaken(await post(token, at(1)));
    expect(await isLive(cookie, at(1))).toBe(false);
  });
});

const logout = (Cookie: string, { port } = relay, path = '/auth/logout') =>
  call(port, path, { method: 'POST', headers: { Cookie } });

describe('signing out', () => {
  test('answers with the logout URL of the provider, and ends the session; logout-all does not need it', async () => {
    const [cookie, ...others] = [await signIn({}), await signIn({}), await signIn({})] as [
      string,
      string,
      string,
    ];
    const answer = await logout(cookie);
    expect(answer).toMatchObject({ status: 200, headers: { 'cache-control': 'no-store' } });
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    const { logoutUrl, ...more } = JSON.parse(answer.body);
    expect([more, logoutUrl.startsWith(END)]).toEqual([{}, true]);
    expect(Object.fromEntries(new URL(logoutUrl).searchParams)).toEqual({
      tenant: 'one',
      client_id: FAKE_CLIENT.id,
      post_logout_redirect_uri: 'http://app.example.com/',
    });
    expect([await isLive(cookie), (await logout(cookie)).status]).toEqual([false, 401]);
    const all = await logout(others[0], relay, '/auth/logout-all');
    expect(all).toMatchObject({ status: 204, body: '' });
    expect(all.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    expect(await isLive(others[1])).toBe(false);
  });

  test('tells the provider the ID token with OIDC_KEEP_ID_TOKEN', async () => {
    const own = await startRelay('http://127.0.0.1:9', {
      ...signInAt(provider.issuer),
      OIDC_KEEP_ID_TOKEN: 'true',
    });
    const { logoutUrl } = JSON.parse((await logout(await signIn({}, own), own)).body);
    const hint = new URL(logoutUrl).searchParams.get('id_token_hint') as string;
    const claims = JSON.parse(Buffer.from(hint.split('.')[1] as string, 'base64url').toString());
    expect(claims).toMatchObject({ iss: provider.issuer, sub: 'ada' });
    await own.close();
  });

  test('answers without a logout URL if the provider has none, or was never reached, and ends the session', async () => {
    const own = await startFakeProvider();
    const [here, other] = [1, 2].map(() => startRelay('http://127.0.0.1:9', signInAt(own.issuer)));
    const [one, never] = [await here, await other] as [TestRelay, TestRelay];
    const { cookie } = await signInWith(one.port);
    const held = (await stored(one.parts.sessions, idOf(cookie))) as Session;
    await never.parts.sessions.set(sessionKey(idOf(cookie)), held);
    const without = { status: 200, body: '{"logoutUrl":null}' };
    expect([await isLive(cookie, one), await logout(cookie, one)]).toMatchObject([true, without]);
    await own.close();
    expect([await isLive(cookie, never), await logout(cookie, never)]).toMatchObject([true, without]);
    expect([await isLive(cookie, one), await isLive(cookie, never)]).toEqual([false, false]);
    for (const each of [one, never]) await each.close();
  });
});
