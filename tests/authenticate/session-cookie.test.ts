import { createHmac } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { realmOf } from '../../src/authenticate/sessions/session.ts';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import { loadConfig } from '../../src/config/config.ts';
import { secret } from '../../src/secret.ts';

const SECRET = 'the-secret-of-this-test-0123456789';
const OTHER = 'another-secret-of-this-test-012345';
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

describe('a session cookie', () => {
  test('is signed by HMAC-SHA-256 with the secret and the mode of sign-in, and gives its id among others', () => {
    expect(sentBack(cookie.set(ID))).toBe(signed(ID));
    expect(cookie.read(`a=b; ${signed(ID)}; c=d`)).toBe(ID);
  });

  test.each([
    [false, 'bot_relay_session', []],
    [true, '__Host-bot_relay_session', ['Secure']],
  ] as const)('has its name and its flags; over https: %s', (https, name, secure) => {
    for (const sameSite of ['strict', 'lax', 'none'] as const) {
      const own = cookieWith({ https, sameSite });
      const [pair, ...flags] = own.set(ID).split('; ');
      const written = sameSite[0]?.toUpperCase() + sameSite.slice(1);
      expect(pair).toMatch(new RegExp(`^${name}=[\\w-]{32}\\.[\\w-]{43}$`));
      expect(flags.sort()).toEqual(['HttpOnly', 'Path=/', `SameSite=${written}`, ...secure]);
      expect(own.read(pair)).toBe(ID);
      expect(own.clear()).toMatch(new RegExp(`^${name}=;.*Expires=Thu, 01 Jan 1970 00:00:00 GMT`));
      expect(own.read(sentBack(own.clear()))).toBeUndefined();
    }
  });

  test('is verified with each of the secrets, and signed with the first', () => {
    const both = cookieWith({ secrets: [secret(OTHER), secret(SECRET)] });
    expect(both.read(signed(ID))).toBe(ID);
    expect(sentBack(both.set(ID))).toBe(signed(ID, `${OTHER} password`));
    expect(both.read(sentBack(both.set(ID)))).toBe(ID);
    expect(cookie.read(sentBack(both.set(ID)))).toBeUndefined();
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
    ['an empty header', ''],
    ['an empty cookie', headerOf('')],
    ['the id alone', headerOf(ID)],
    ['an empty signature', headerOf(`${ID}.`)],
    ['an empty id, well signed', signed('')],
    ['an escaped one', signed(ID).replace('.', '%2E')],
    ['bytes that are no UTF-8', headerOf(`${ID}.${'\xff'.repeat(43)}`)],
    ['the secret alone as its key', signed(ID, SECRET)],
    ['another realm', signed(ID, `${SECRET} guest`)],
    ['a cookie twice', `${signed(ID)}; ${signed(ID)}`],
    ['a forged one before it', `${headerOf('bad')}; ${signed(ID)}`],
    ['a forged one after it', `${signed(ID)}; ${headerOf('bad')}`],
    ['the name of the https relay', `__Host-${signed(ID)}`],
    ['another name', signed(ID).replace('bot_relay', 'Bot_relay')],
    ['an id that is too short, although well signed', signed('y'.repeat(31))],
    ['an id that is too long, although well signed', signed('y'.repeat(33))],
    ['a cookie that is far too long', signed('y'.repeat(1_000_000))],
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
