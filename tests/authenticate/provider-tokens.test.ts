import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { exportSPKI, type JWTPayload } from 'jose';
import { call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
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

const keys: Record<string, SigningKey> = {};
const keyNamed = (name: string) => keys[name] as SigningKey;
let provider: FakeProvider;
let relay: TestRelay;
/** What the provider does if a test changes nothing. */
let usual: FakeProvider;
beforeAll(async () => {
  provider = await startFakeProvider();
  for (const alg of ['ES256', 'PS256', 'RS256', 'ES384']) keys[alg] = await signingKey(`of-${alg}`, alg);
  keys.stranger = await signingKey('stranger');
  provider.published = [provider.signer, ...['ES256', 'PS256', 'RS256', 'ES384'].map(keyNamed)];
  // The metadata allows these, so that only the relay itself can refuse one.
  provider.metadata.id_token_signing_alg_values_supported = ['RS256', 'PS256', 'ES256', 'HS256', 'none'];
  relay = await startRelay('http://127.0.0.1:9', signInAt(provider.issuer));
  usual = { ...provider };
});
beforeEach(() => void Object.assign(provider, usual));
afterAll(async () => {
  await relay.close();
  await provider.close();
});

const isLive = async (Cookie: string) =>
  isSignedIn(await call(relay.port, '/auth/session', { headers: { Cookie } }));

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
  const answer = await call(relay.port, '/auth/backchannel-logout', {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ logout_token: token }).toString(),
  });
  if (isTaken) expect(answer).toMatchObject({ status: 200, body: '' });
  else expectProblem(answer, 400, 'invalid_logout_token');
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
    ['for other clients', () => ({ aud: ['another', 'third'] }), COMPARED],
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
    await expectNoSignIn(cause);
    Object.assign(provider, usual);
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
    ['with a nonce', () => ({ nonce: 'n' })],
    ['with a nonce that is null', () => ({ nonce: null })],
    ['without an event', () => ({ events: undefined })],
    ['of another event', () => ({ events: { 'http://schemas.openid.net/event/other': {} } })],
    ['whose event is not an object', () => ({ events: { [BACKCHANNEL_EVENT]: true } })],
    ['whose events are a list', () => ({ events: [BACKCHANNEL_EVENT] })],
    ['without a user and a session', () => ({ sub: undefined, sid: undefined })],
    ['of an empty user', () => ({ sub: '' })],
    ['of an empty session', () => ({ sid: '' })],
    ['whose user is not a string', () => ({ sub: ['ada'] })],
    ['of 4 minutes ago', () => ({ iat: seconds(-240) })],
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
