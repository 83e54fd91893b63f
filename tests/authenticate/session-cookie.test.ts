import { createHmac } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { realmOf } from '../../src/authenticate/sessions/session.ts';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import { loadConfig } from '../../src/config/config.ts';
import { secret } from '../../src/secret.ts';
import { type Answer, call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { NAVIGATION } from '../harness/relay/oidc-relay.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { idOf } from '../harness/relay/sessions.ts';
import {
  FAKE_CLIENT,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';
import { Jar } from '../harness/service/identity-provider.ts';

const SECRET = 'the-secret-of-this-test-0123456789';
const ID = 'Vb9qXo1Q2n-_aZ0kLmN3pRsT4uVwX5yZ';

const cookieWith = (options: Partial<Parameters<typeof sessionCookie>[0]> = {}) =>
  sessionCookie({
    ...{ secrets: [secret(SECRET)], realm: 'password', sameSite: 'strict', https: false },
    ...options,
  });
const cookie = cookieWith();
const signatureOf = (id: string, key = `${SECRET} password`) =>
  createHmac('sha256', key).update(id).digest('base64url');
const headerOf = (value: string) => `bot_relay_session=${value}`;
const signed = (id: string, key?: string) => headerOf(`${id}.${signatureOf(id, key)}`);
/** The part of a `Set-Cookie` that a browser sends back. */
const sentBack = (setCookie: string) => setCookie.split(';', 1)[0] as string;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});
const closeLater = <T extends { close(): Promise<unknown> }>(one: T): T => {
  ends.push(() => one.close());
  return one;
};
const start = async (environment: Record<string, string>) =>
  closeLater(await startRelay('http://127.0.0.1:9', environment));
const startProvider = async () => closeLater(await startFakeProvider());

describe('a session cookie', () => {
  test('is signed by HMAC-SHA-256 with the secret and the mode of sign-in, and gives its id among others', () => {
    expect(sentBack(cookie.set(ID))).toBe(signed(ID));
    expect(cookie.read(`a=b; ${signed(ID)}; c=d`)).toBe(ID);
  });

  test('is refused if any character is changed', () => {
    const good = `${ID}.${signatureOf(ID)}`;
    for (let at = 0; at < good.length; at += 1) {
      for (const other of ['A', 'B', 'w', '.', '/', ' ', '\u0000', 'é'].filter((one) => one !== good[at])) {
        const changed = good.slice(0, at) + other + good.slice(at + 1);
        expect([changed, cookie.read(headerOf(changed))]).toEqual([changed, undefined]);
      }
    }
  });

  test('is refused if its signature is another text of the same bytes', () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const signature = signatureOf(ID);
    const base64 = Buffer.from(signature, 'base64url').toString('base64');
    const spellings = [...alphabet].map((last) => signature.slice(0, -1) + last);
    const all = [...spellings, `${signature}=`, `${signature} `, ` ${signature}`, base64];
    expect(all.filter((each) => cookie.read(headerOf(`${ID}.${each}`)))).toEqual([signature]);
  });

  test.each([
    ['nothing', undefined],
    ['an empty cookie', headerOf('')],
    ['the id alone', headerOf(ID)],
    ['an escaped one', signed(ID).replace('.', '%2E')],
    ['bytes that are no UTF-8', headerOf(`${ID}.${'\xff'.repeat(43)}`)],
    ['the secret alone as its key', signed(ID, SECRET)],
    ['another realm', signed(ID, `${SECRET} guest`)],
    ['a forged one before it', `${headerOf('bad')}; ${signed(ID)}`],
    ['a forged one after it', `${signed(ID)}; ${headerOf('bad')}`],
    ['the name of the https relay', `__Host-${signed(ID)}`],
    ['another name', signed(ID).replace('bot_relay', 'Bot_relay')],
    ['an id that is too short, although well signed', signed('y'.repeat(31))],
    ['an id that is far too long, although well signed', signed('y'.repeat(1_000_000))],
  ])('is not read from %s', (_what, header) => {
    expect(cookie.read(header)).toBeUndefined();
  });

  test.each([false, true])(
    'is read beside those of a sibling host with similar names; over https: %s',
    (https) => {
      const own = cookieWith({ https });
      const good = sentBack(own.set(ID));
      const name = good.slice(0, good.indexOf('='));
      // All that makes it another name: browsers trim only spaces and tabs.
      const high = Array.from({ length: 128 }, (_, n) => String.fromCharCode(128 + n));
      for (const byte of [...'()<>@,:\\"/[]?={}\t', ...high]) {
        const similar = [`${byte}${name}`, `${name}${byte}`, `${byte} ${name}`];
        const others = similar.filter((one) => !one.startsWith(`${name}=`)).map((one) => `${one}=bad`);
        for (const header of [`a=b;${others.join(';')}; ${good}`, `${good};${others.join(';')}`])
          expect([header, own.read(header)]).toEqual([header, ID]);
        for (const one of similar)
          expect(own.read(`a=b;${one}=${good.slice(name.length + 1)}`)).toBeUndefined();
      }
    },
  );
});

describe('the flags of the cookie', () => {
  test.each([
    ['http', 'Strict'],
    ['https', 'Lax'],
    ['https', 'None'],
  ])(
    'follow PUBLIC_URL, whatever a proxy says, and are the same when it is removed: %s, %s',
    async (scheme, sameSite) => {
      const environment = {
        PUBLIC_URL: `${scheme}://app.example.com`,
        COOKIE_SAME_SITE: sameSite.toLowerCase(),
      };
      const { port } = await start({ ...environment, TRUST_PROXY: '1' });
      const post = (path: string, headers: Record<string, string>, body = '') =>
        call(port, path, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', ...headers },
          body,
        });
      const [prefix, secure] = scheme === 'https' ? ['__Host-', ['Secure']] : ['', []];
      /** Expects one cookie, with its flags and `more`; returns its name and value. */
      function expectFlags({ headers }: Answer, ...more: string[]): string {
        const [set = '', ...others] = headers['set-cookie'] ?? [];
        const [pair = '', ...flags] = set.split('; ');
        expect([others, flags.sort()]).toEqual([
          [],
          [...more, 'HttpOnly', 'Path=/', `SameSite=${sameSite}`, ...secure],
        ]);
        return pair;
      }
      const credentials = JSON.stringify({ username: USER.name, password: CANARY.password });
      for (const proto of ['https', 'http', 'https,http']) {
        const Cookie = expectFlags(await post('/auth/login', { 'X-Forwarded-Proto': proto }, credentials));
        expect(Cookie).toMatch(new RegExp(`^${prefix}bot_relay_session=[\\w-]{32}\\.[\\w-]{43}$`));
        const out = await post('/auth/logout', { 'X-Forwarded-Proto': proto, Cookie });
        const cleared = expectFlags(out, 'Expires=Thu, 01 Jan 1970 00:00:00 GMT');
        expect(cleared).toBe(`${prefix}bot_relay_session=`);
      }
    },
  );
});

const OIDC = { AUTH_MODE: 'oidc', OIDC_CLIENT_ID: 'bot-relay', OIDC_CLIENT_SECRET: 'secret' };

// With another realm, no user would reach an earlier conversation. docs/configuration.md names them for CHANNEL_REALM.
test.each([
  [{}, 'password'],
  [{ AUTH_MODE: 'guest' }, 'guest'],
  [{ ...OIDC, OIDC_ISSUER: 'https://id.example.com' }, 'oidc https://id.example.com/ bot-relay'],
  [{ ...OIDC, OIDC_ISSUER: 'https://id.example.com/staff' }, 'oidc https://id.example.com/staff bot-relay'],
])('the realm of the users of %j stays %s', (environment, realm) => {
  expect(realmOf(loadConfig(environment))).toBe(realm);
});

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

test('a sign-in that began at one identity provider cannot finish at another one, which never gets the code', async () => {
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

describeWithRedis('a session with the same store and the same secrets', () => {
  let shared: { REDIS_URL: string };
  beforeAll(async () => {
    shared = { REDIS_URL: (await startRedis()).url };
  });
  afterAll(() => stopRedis());
  const knows = async ({ port }: TestRelay, Cookie: string) =>
    isSignedIn(await call(port, '/auth/session', { headers: { Cookie } }));

  test('is not valid in another mode than the one in which it began', async () => {
    const oidc = await start({ ...shared, ...signInAt((await startProvider()).issuer) });
    const password = await start(shared);
    const guest = await start({ ...shared, AUTH_MODE: 'guest' });
    const asGuest = async (Cookie = '') => {
      const answer = await call(guest.port, '/auth/guest', { method: 'POST', headers: { Cookie } });
      return sentBack(String(answer.headers['set-cookie']));
    };
    const ofPassword = await password.signIn();
    const cookies = [(await signInWith(oidc.port)).cookie, ofPassword, await asGuest()];
    const seen: boolean[][] = [];
    for (const one of cookies)
      seen.push(await Promise.all([oidc, password, guest].map((relay) => knows(relay, one))));
    expect(seen).toEqual([
      [true, false, false],
      [false, true, false],
      [false, false, true],
    ]);
    // Who has the session of another mode becomes a guest beside it.
    expect(idOf(await asGuest(ofPassword))).not.toBe(idOf(ofPassword));
    expect(await knows(password, ofPassword)).toBe(true);
  });

  test('is not valid at another identity provider, nor for another client, since its user may be another one there', async () => {
    const [ours, theirs] = [await startProvider(), await startProvider()];
    const own = { ...shared, ...signInAt(ours.issuer) };
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
