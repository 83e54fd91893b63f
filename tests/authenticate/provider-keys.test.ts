import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { type JWTVerifyGetKey, jwtVerify } from 'jose';
import { providerKeys } from '../../src/authenticate/oidc/provider-keys.ts';
import {
  type FakeProvider,
  PATHS,
  type SigningKey,
  signInAt,
  signInWith,
  signingKey,
  startFakeProvider,
} from '../support/fake-provider.ts';
import { startRelay } from '../support/relay.ts';
import { passed } from '../support/time-passes.ts';

const MINUTE = 60_000;

let provider: FakeProvider;
let first: SigningKey;
let second: SigningKey;
let keys: JWTVerifyGetKey;
beforeEach(async () => {
  provider = await startFakeProvider();
  first = provider.signer;
  second = await signingKey('second');
  keys = providerKeys(new URL(provider.issuer + PATHS.keys), { fetch, timeoutMs: 5000 });
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
  test('are asked for once by all who need them at the same time, and then kept', async () => {
    expect(await Promise.all(Array.from({ length: 50 }, () => verify(first)))).toEqual(
      Array.from({ length: 50 }, () => 'accepted'),
    );
    expect(await verify(first)).toBe('accepted');
    expect(asked()).toBe(1);
  });

  test('that are new are found with the first token that they sign, also just after the others came', async () => {
    await verify(first);
    provider.published = [first, second];
    expect(await verify(second)).toBe('accepted');
    expect(asked()).toBe(2);
  });

  test('that do not exist are not asked for without bound, and keep nobody from signing in', async () => {
    const stranger = await signingKey('stranger');
    await verify(first);
    const from = performance.now();
    provider.signer = stranger;
    const forged = await provider.sign({ sub: 'eve' });
    provider.signer = first;
    const flood = async () => {
      const answers = new Set<string>();
      while (performance.now() - from < 2500) answers.add(await verifyToken(forged));
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
    // One every second, beginning with the first.
    const most = 2 + Math.floor((performance.now() - from) / 1000);
    expect(asked()).toBeLessThanOrEqual(most);
  });

  test('that the provider has taken away are refused once the kept ones are old', async () => {
    await verify(first);
    provider.published = [second];
    passed({ date: 9 * MINUTE, monotonic: 9 * MINUTE });
    expect(await verify(first)).toBe('accepted');
    expect(asked()).toBe(1);
    passed({ date: 11 * MINUTE, monotonic: 11 * MINUTE });
    expect(await verify(first)).toBe('ERR_JWKS_NO_MATCHING_KEY');
    expect(await verify(second)).toBe('accepted');
  });

  test.each<[string, (res: ServerResponse) => unknown]>([
    ['an error', (res) => res.writeHead(500).end()],
    ['a redirect', (res) => res.writeHead(302, { Location: '/other-keys' }).end()],
    ['no JSON', (res) => res.end('<html>')],
    ['no keys', (res) => res.end('{}')],
    ['a cut connection', (res) => res.destroy()],
  ])('cannot be had where %s comes: that is not the fault of the token', async (_what, answer) => {
    provider.answers = { [PATHS.keys]: (_req, res) => void answer(res) };
    expect(await verify(first)).toBe('KEYS_UNAVAILABLE');
    expect(provider.asked('/other-keys')).toBe(0);
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
  test('succeeds while the provider changes its key, just after the relay asked for the old ones', async () => {
    const relay = await startRelay('http://127.0.0.1:9', signInAt(provider.issuer));
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    Object.assign(provider, { published: [second], signer: second });
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    expect(asked()).toBe(2);
    await relay.close();
  });
});
