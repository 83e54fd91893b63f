import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type JWTVerifyGetKey, jwtVerify } from 'jose';
import { providerKeys } from '../../src/authenticate/oidc/provider-keys.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { startRelay } from '../harness/relay/relay.ts';
import {
  type FakeProvider,
  PATHS,
  type SigningKey,
  signInAt,
  signInWith,
  signingKey,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const MINUTE = 60_000;
const MIN_INTERVAL_MS = 200;

let provider: FakeProvider;
let first: SigningKey;
let second: SigningKey;
let keys: JWTVerifyGetKey;
beforeEach(async () => {
  provider = await startFakeProvider();
  first = provider.signer;
  second = await signingKey('second');
  keys = providerKeys(new URL(provider.issuer + PATHS.keys), {
    fetch,
    timeoutMs: 5000,
    minIntervalMs: MIN_INTERVAL_MS,
  });
});
afterEach(async () => {
  jest.restoreAllMocks();
  await provider.close();
});

const asked = () => provider.asked(PATHS.keys);
async function verify(signer: SigningKey): Promise<string> {
  provider.signer = signer;
  return verifyToken(await provider.sign({ sub: 'ada' }));
}
describe('the keys of the provider', () => {
  test('are fetched once for several tokens at the same time, and then kept', async () => {
    expect(await Promise.all(Array.from({ length: 50 }, () => verify(first)))).toEqual(
      Array.from({ length: 50 }, () => 'accepted'),
    );
    expect(await verify(first)).toBe('accepted');
    expect(asked()).toBe(1);
  });

  test('are fetched again for the first token of a new key, also directly after another fetch', async () => {
    await verify(first);
    provider.published = [first, second];
    expect(await verify(second)).toBe('accepted');
    expect(asked()).toBe(2);
  });

  test('are not fetched again for a token that no key could fit', async () => {
    await verify(first);
    const [, claims] = (await provider.sign({ sub: 'ada' })).split('.');
    const header = Buffer.from('{"alg":"HS256"}').toString('base64url');
    expect(await verifyToken(`${header}.${claims}.c2lnbmF0dXJl`)).toBe('ERR_JOSE_NOT_SUPPORTED');
    expect(asked()).toBe(1);
  });

  test('are fetched at most once a second for unknown keys, and other users can still sign in', async () => {
    const stranger = await signingKey('stranger');
    await verify(first);
    const from = performance.now();
    provider.signer = stranger;
    const forged = await provider.sign({ sub: 'eve' });
    provider.signer = first;
    const flood = async () => {
      const answers = new Set<string>();
      while (performance.now() - from < 2.5 * MIN_INTERVAL_MS) answers.add(await verifyToken(forged));
      return answers;
    };
    const floods = Array.from({ length: 20 }, flood);
    const honest: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      honest.push(await verifyToken(await provider.sign({ sub: 'ada' })));
      await sleep(50);
    }
    for (const answers of await Promise.all(floods))
      expect([...answers]).toEqual(['ERR_JWKS_NO_MATCHING_KEY']);
    expect(honest).toEqual(Array.from({ length: 5 }, () => 'accepted'));
    // One in each interval, with the first at once.
    const most = 2 + Math.floor((performance.now() - from) / MIN_INTERVAL_MS);
    expect(asked()).toBeLessThanOrEqual(most);
  });

  test('that the provider has withdrawn are refused when the kept ones are old', async () => {
    await verify(first);
    provider.published = [second];
    advanceClocks({ date: 9 * MINUTE, monotonic: 9 * MINUTE });
    expect(await verify(first)).toBe('accepted');
    expect(asked()).toBe(1);
    advanceClocks({ date: 11 * MINUTE, monotonic: 11 * MINUTE });
    expect(await verify(first)).toBe('ERR_JWKS_NO_MATCHING_KEY');
    expect(await verify(second)).toBe('accepted');
  });

  test('are not available if the provider does not give them, which is not a fault of the token', async () => {
    for (const answer of ['<html>', '{}', undefined]) {
      provider.answers = { [PATHS.keys]: (_req, res) => void (answer ? res.end(answer) : res.destroy()) };
      expect(await verify(first)).toBe('KEYS_UNAVAILABLE');
    }
    provider.answers = {};
    expect(await verify(first)).toBe('accepted');
  });
});

function verifyToken(token: string): Promise<string> {
  return jwtVerify(token, keys).then(
    () => 'accepted',
    ({ code }) => code,
  );
}

describe('a sign-in', () => {
  test('succeeds if the provider changes its key directly after the relay has fetched the old ones', async () => {
    const relay = await startRelay('http://127.0.0.1:9', signInAt(provider.issuer));
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    Object.assign(provider, { published: [second], signer: second });
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    expect(asked()).toBe(2);
    await relay.close();
  });
});
