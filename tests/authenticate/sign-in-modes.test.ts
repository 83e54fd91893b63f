import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { NAVIGATION } from '../harness/relay/oidc-relay.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';
import {
  FAKE_CLIENT,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';
import { Jar } from '../harness/service/identity-provider.ts';

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});
const start = async (environment: Record<string, string>) => {
  const relay = await startRelay('http://127.0.0.1:9', environment);
  ends.push(relay.close);
  return relay;
};
const startProvider = async () => {
  const provider = await startFakeProvider();
  ends.push(provider.close);
  return provider;
};
const startSharedRedis = async () => {
  ends.push(async () => stopRedis());
  return { REDIS_URL: (await startRedis()).url };
};
const knows = async ({ port }: TestRelay, Cookie: string) =>
  isSignedIn(await call(port, '/auth/session', { headers: { Cookie } }));

const WAYS: Record<string, readonly string[]> = {
  guest: ['POST /auth/guest'],
  password: ['POST /auth/login'],
  oidc: ['GET /auth/login', 'GET /auth/callback', 'POST /auth/backchannel-logout'],
};

test.each(Object.entries(WAYS))('with AUTH_MODE=%s only its own sign-in routes exist', async (mode, ways) => {
  const { port } = await start(mode === 'oidc' ? signInAt('http://127.0.0.1:9') : { AUTH_MODE: mode });
  for (const way of Object.values(WAYS).flat()) {
    const [method = '', path = ''] = way.split(' ');
    for (const headers of [{}, NAVIGATION]) {
      const answer = await call(port, path, { method, headers });
      const hasPath = ways.some((one) => one.endsWith(` ${path}`));
      if (ways.includes(way)) expect([way, 404, 405]).not.toContain(answer.status);
      else if (mode === 'oidc' && hasPath)
        expect([way, answer.status, answer.headers.allow]).toEqual([way, 405, 'GET, HEAD']);
      else expectProblem(answer, hasPath ? 405 : 404, hasPath ? 'method_not_allowed' : 'not_found');
    }
  }
});

describeWithRedis('a session that began in another mode', () => {
  test('is not valid, even with the same store and the same secrets', async () => {
    const shared = await startSharedRedis();
    const oidc = await start({ ...shared, ...signInAt((await startProvider()).issuer) });
    const password = await start(shared);
    const guest = await start({ ...shared, AUTH_MODE: 'guest' });
    const asGuest = async (Cookie = '') => {
      const answer = await call(guest.port, '/auth/guest', { method: 'POST', headers: { Cookie } });
      return String(answer.headers['set-cookie']).split(';')[0] as string;
    };
    const ofPassword = await password.signIn();
    const cookies = [(await signInWith(oidc.port)).cookie, ofPassword, await asGuest()];
    const seen: boolean[][] = [];
    for (const cookie of cookies)
      seen.push(await Promise.all([oidc, password, guest].map((relay) => knows(relay, cookie))));
    expect(seen).toEqual([
      [true, false, false],
      [false, true, false],
      [false, false, true],
    ]);
    // Who has the session of another mode becomes a guest beside it.
    expect(idOf(await asGuest(ofPassword))).not.toBe(idOf(ofPassword));
    expect(await knows(password, ofPassword)).toBe(true);
  });
});

describe('a sign-in that began at one identity provider', () => {
  test('cannot finish at another one, which never gets the code', async () => {
    const [ours, theirs] = [await startProvider(), await startProvider()];
    const begun = await call((await start(signInAt(ours.issuer))).port, '/auth/login', {});
    const jar = new Jar();
    jar.takeAll(begun.headers['set-cookie']);
    const { searchParams } = new URL(begun.headers.location as string);
    const other = await start(signInAt(theirs.issuer));
    const back = `/auth/callback?code=x&state=${searchParams.get('state')}`;
    const ended = await call(other.port, back, { headers: { Cookie: jar.header() } });
    expectProblem(ended, 400, 'sign_in_failed');
    expect(theirs.asked(PATHS.token)).toBe(0);
  });
});

describeWithRedis('a session that began at one identity provider', () => {
  test('is not valid at another one, nor for another client, since its user may be another one there', async () => {
    const [ours, theirs] = [await startProvider(), await startProvider()];
    const own = { ...(await startSharedRedis()), ...signInAt(ours.issuer) };
    const { cookie } = await signInWith((await start(own)).port);
    const seen: boolean[] = [];
    for (const changed of [
      { OIDC_SCOPES: 'openid' },
      { OIDC_ISSUER: theirs.issuer },
      { OIDC_CLIENT_ID: `${FAKE_CLIENT.id}-2` },
    ])
      seen.push(await knows(await start({ ...own, ...changed }), cookie));
    expect(seen).toEqual([true, false, false]);
  });
});
