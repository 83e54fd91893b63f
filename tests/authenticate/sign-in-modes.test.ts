import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { NAVIGATION, startOidc } from '../harness/relay/oidc-relay.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
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
const startOther = async (environment: Record<string, string>) => {
  const relay = await startRelay('http://127.0.0.1:9', environment);
  ends.push(relay.close);
  return relay;
};
const start = async (environment: Record<string, string> = {}) => {
  const oidc = await startOidc({ environment });
  ends.push(oidc.close);
  return oidc;
};
const post = (relay: TestRelay, path: string) =>
  call(relay.port, path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"username":"ada","password":"x"}',
  });

describe('a sign-in route of another AUTH_MODE', () => {
  test('does not exist in the mode oidc', async () => {
    const { relay } = await start();
    expectProblem(await post(relay, '/auth/guest'), 404, 'not_found');
    const login = await post(relay, '/auth/login');
    expectProblem(login, 405, 'method_not_allowed');
    expect(login.headers.allow).toBe('GET, HEAD');
  });

  test.each(['password', 'guest'])('does not exist in the mode %s', async (mode) => {
    const relay = await startOther({ AUTH_MODE: mode });
    for (const headers of [{}, NAVIGATION]) {
      expectProblem(await call(relay.port, '/auth/callback?code=x&state=y', { headers }), 404, 'not_found');
      const login = await call(relay.port, '/auth/login?returnTo=/', { headers });
      if (mode === 'guest') expectProblem(login, 404, 'not_found');
      else expectProblem(login, 405, 'method_not_allowed');
    }
    expectProblem(await post(relay, '/auth/backchannel-logout'), 404, 'not_found');
  });
});

describeWithRedis('a session that began in another mode', () => {
  test('is not valid, even with the same store and the same secrets', async () => {
    const redis = await startRedis();
    ends.push(async () => stopRedis());
    const shared = { REDIS_URL: redis.url };
    const oidc = await start(shared);
    const password = await startOther(shared);
    const guest = await startOther({ ...shared, AUTH_MODE: 'guest' });
    const session = async (relay: TestRelay, cookie: string) =>
      (await call(relay.port, '/auth/session', { headers: { Cookie: cookie } })).status;

    const browser = oidc.browser();
    await browser.signIn();
    const ofGuest = String((await post(guest, '/auth/guest')).headers['set-cookie']).split(';')[0] as string;
    const cookies = [browser.jar.header(), await password.signIn(), ofGuest];
    const seen: number[][] = [];
    for (const cookie of cookies)
      seen.push(await Promise.all([oidc.relay, password, guest].map((relay) => session(relay, cookie))));
    expect(seen).toEqual([
      [200, 401, 401],
      [401, 200, 401],
      [401, 401, 200],
    ]);
  });
});

const startProvider = async () => {
  const provider = await startFakeProvider();
  ends.push(provider.close);
  return provider;
};

describe('a sign-in that began at one identity provider', () => {
  test('cannot finish at another one, which never gets the code', async () => {
    const [ours, theirs] = [await startProvider(), await startProvider()];
    const begun = await call((await startOther(signInAt(ours.issuer))).port, '/auth/login', {});
    const jar = new Jar();
    jar.takeAll(begun.headers['set-cookie']);
    const { searchParams } = new URL(begun.headers.location as string);
    const other = await startOther(signInAt(theirs.issuer));
    const back = `/auth/callback?code=x&state=${searchParams.get('state')}`;
    const ended = await call(other.port, back, { headers: { Cookie: jar.header() } });
    expectProblem(ended, 400, 'sign_in_failed');
    expect(theirs.asked(PATHS.token)).toBe(0);
  });
});

describeWithRedis('a session that began at one identity provider', () => {
  test('is not valid at another one, nor for another client, since its user may be another one there', async () => {
    const redis = await startRedis();
    ends.push(async () => stopRedis());
    const [ours, theirs] = [await startProvider(), await startProvider()];
    const own = { REDIS_URL: redis.url, ...signInAt(ours.issuer) };
    const relay = await startOther(own);
    const { cookie } = await signInWith(relay.port);
    const others = [
      { ...own, OIDC_SCOPES: 'openid' },
      { ...own, OIDC_ISSUER: theirs.issuer },
      { ...own, OIDC_CLIENT_ID: `${FAKE_CLIENT.id}-2` },
    ];
    const seen: number[] = [];
    for (const environment of others) {
      const { port } = await startOther(environment);
      seen.push((await call(port, '/auth/session', { headers: { Cookie: cookie } })).status);
    }
    expect(seen).toEqual([200, 401, 401]);
  });
});
