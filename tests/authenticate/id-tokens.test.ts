import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { exportSPKI, type JWTPayload } from 'jose';
import { call, expectProblem } from '../harness/clients/call.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
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
let provider: FakeProvider;
let relay: TestRelay;
let usual: FakeProvider;
beforeAll(async () => {
  provider = await startFakeProvider();
  for (const alg of ['ES256', 'PS256', 'RS256']) keys[alg] = await signingKey(`of-${alg}`, alg);
  keys.stranger = await signingKey('stranger');
  provider.published = [provider.signer, ...['ES256', 'PS256', 'RS256'].map(keyNamed)];
  // The metadata allows every algorithm, so that only the relay itself can refuse one.
  provider.metadata.id_token_signing_alg_values_supported = ['RS256', 'PS256', 'ES256', 'HS256', 'none'];
  relay = await startRelay('http://127.0.0.1:9', signInAt(provider.issuer));
  usual = { ...provider };
});
beforeEach(() => {
  Object.assign(provider, usual);
});
afterAll(async () => {
  await relay.close();
  await provider.close();
});

const keyNamed = (name: string) => keys[name] as SigningKey;
const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const signedBy = (header: object, claims: JWTPayload, signature: (text: string) => string) => {
  const text = `${base64(header)}.${base64(claims)}`;
  return `${text}.${signature(text)}`;
};
const hs256 = (secret: string) => (text: string) =>
  createHmac('sha256', secret).update(text).digest('base64url');
const isCallback = ({ route }: Record<string, unknown>) => route === '/auth/callback';
const isSignedIn = async (cookie: string) =>
  (await call(relay.port, '/auth/session', { headers: { Cookie: cookie } })).status === 200;

/** A fault that only the provider or its settings can have caused is logged as a warning. */
async function expectRefused(cause: string, level = 'warn'): Promise<void> {
  const seen = relay.logs.length;
  const { ended, cookie } = await signInWith(relay.port);
  expectProblem(ended, 400, 'sign_in_failed');
  expect(String(ended.headers['set-cookie'])).not.toContain('bot_relay_session=s');
  expect(await isSignedIn(cookie)).toBe(false);
  await relay.logLine((line) => isCallback(line) && line.requestId === ended.headers['x-request-id']);
  const told = relay.logs.slice(seen).filter(isCallback);
  expect(told).toEqual([expect.objectContaining({ level, outcome: 'sign_in_failed', cause })]);
}

describe('an ID token', () => {
  test.each(['ES256', 'PS256', 'RS256'])(
    'that is signed with a key of the provider, by %s, signs in',
    async (alg) => {
      provider.signer = keyNamed(alg);
      const { ended, cookie } = await signInWith(relay.port);
      expect(ended.status).toBe(302);
      expect(await isSignedIn(cookie)).toBe(true);
    },
  );

  test.each<[string, () => Promise<string> | string, (claims: JWTPayload) => Promise<string> | string]>([
    [
      'whose signature was changed',
      () => 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
      async (claims) => {
        const [head, , signature] = (await provider.sign(claims)).split('.');
        return [head, base64({ ...claims, sub: 'root' }), signature].join('.');
      },
    ],
    [
      'of another key with the id of a valid one',
      () => 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
      (claims) => {
        provider.signer = { ...keyNamed('stranger'), kid: usual.signer.kid };
        return provider.sign(claims);
      },
    ],
    [
      'that is signed with a key that the provider does not have',
      () => 'ERR_JWKS_NO_MATCHING_KEY',
      (claims) => {
        provider.signer = keyNamed('stranger');
        return provider.sign(claims);
      },
    ],
    [
      'that is not signed',
      () => 'ERR_JOSE_NOT_SUPPORTED',
      (claims) => signedBy({ alg: 'none' }, claims, () => ''),
    ],
    [
      'that is signed with the client secret',
      () => 'ERR_JOSE_NOT_SUPPORTED',
      (claims) => signedBy({ alg: 'HS256' }, claims, hs256(FAKE_CLIENT.secret)),
    ],
    [
      'that is signed with the public key as if it were a secret',
      () => 'ERR_JOSE_NOT_SUPPORTED',
      async (claims) =>
        signedBy(
          { alg: 'HS256', kid: usual.signer.kid },
          claims,
          hs256(await exportSPKI(usual.signer.publicKey)),
        ),
    ],
    [
      'that brings its own key',
      () => 'ERR_JWS_SIGNATURE_VERIFICATION_FAILED',
      (claims) => {
        const { jwk } = keyNamed('stranger');
        provider.signer = { ...keyNamed('stranger'), kid: usual.signer.kid };
        return provider.sign(claims, { jwk });
      },
    ],
  ])('%s is refused', async (_what, cause, idToken) => {
    provider.idToken = idToken;
    await expectRefused(await cause());
  });

  test('that is signed by an algorithm that the metadata does not name is refused', async () => {
    const strict = await startFakeProvider();
    strict.metadata.id_token_signing_alg_values_supported = ['RS256'];
    const other = await startRelay('http://127.0.0.1:9', signInAt(strict.issuer));
    expectProblem((await signInWith(other.port)).ended, 400, 'sign_in_failed');
    expect(await other.logLine(isCallback)).toMatchObject({ level: 'warn', outcome: 'sign_in_failed' });
    await other.close();
    await strict.close();
  });

  const COMPARED = 'OAUTH_JWT_CLAIM_COMPARISON_FAILED';
  const MISSING = 'OAUTH_INVALID_RESPONSE';
  const TIMES = 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED';
  test.each<[string, () => Record<string, unknown>, string]>([
    ['of another issuer', () => ({ iss: 'http://127.0.0.1:1' }), COMPARED],
    ['without an issuer', () => ({ iss: undefined }), MISSING],
    ['for another client', () => ({ aud: 'another' }), COMPARED],
    ['for other clients', () => ({ aud: ['another', 'third'] }), COMPARED],
    ['without an audience', () => ({ aud: undefined }), MISSING],
    ['for this and another client', () => ({ aud: [FAKE_CLIENT.id, 'another'] }), COMPARED],
    [
      'for two clients, issued to the other one',
      () => ({ aud: [FAKE_CLIENT.id, 'another'], azp: 'another' }),
      COMPARED,
    ],
    ['issued to another client', () => ({ azp: 'another' }), 'ERR_JWT_CLAIM_VALIDATION_FAILED'],
    ['without a nonce', () => ({ nonce: undefined }), MISSING],
    ['that expired 2 minutes ago', () => ({ iat: seconds(-600), exp: seconds(-120) }), TIMES],
    ['without an exp claim', () => ({ exp: undefined }), MISSING],
    [
      'that is dated 2 minutes ahead',
      () => ({ iat: seconds(120), exp: seconds(420) }),
      'ERR_JWT_CLAIM_VALIDATION_FAILED',
    ],
    ['that becomes valid in 2 minutes', () => ({ nbf: seconds(120) }), TIMES],
    ['without a date', () => ({ iat: undefined }), MISSING],
    ['that is dated 2 hours back', () => ({ iat: seconds(-7200) }), 'ERR_JWT_EXPIRED'],
    ['without a subject', () => ({ sub: undefined }), MISSING],
    ['whose subject contains a header', () => ({ sub: 'ada\r\nx: y' }), 'bad_subject'],
  ])('%s is refused', async (_what, claims, cause) => {
    provider.claims = claims();
    await expectRefused(cause);
  });

  test('with the nonce of another sign-in is refused without a warning, since users can cause it', async () => {
    provider.claims = { nonce: 'another' };
    await expectRefused(COMPARED, 'info');
  });

  test.each<[string, () => Record<string, unknown>]>([
    ['that expired 20 seconds ago', () => ({ iat: seconds(-300), exp: seconds(-20) })],
    ['that is dated 20 seconds ahead', () => ({ iat: seconds(20), nbf: seconds(20) })],
    [
      'that is dated back by 5 minutes, as some providers do',
      () => ({ iat: seconds(-300), nbf: seconds(-300) }),
    ],
    ['for this client, as a list', () => ({ aud: [FAKE_CLIENT.id] })],
    [
      'for several clients, but issued to this one',
      () => ({ aud: ['other', FAKE_CLIENT.id], azp: FAKE_CLIENT.id }),
    ],
  ])('%s signs in', async (_what, claims) => {
    provider.claims = claims();
    const { ended, cookie } = await signInWith(relay.port);
    expect(ended.status).toBe(302);
    expect(await isSignedIn(cookie)).toBe(true);
  });

  test('is required', async () => {
    provider.answers = {
      [PATHS.token]: (_req, res) =>
        void res
          .setHeader('Content-Type', 'application/json')
          .end(JSON.stringify({ access_token: 'a', token_type: 'Bearer' })),
    };
    await expectRefused('OAUTH_INVALID_RESPONSE');
  });
});
