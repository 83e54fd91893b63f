import { createHmac } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import { secret } from '../../src/secret.ts';

const SECRET = 'the-secret-of-this-test-0123456789';
const OTHER = 'another-secret-of-this-test-012345';
const ID = 'Vb9qXo1Q2n-_aZ0kLmN3pRsT4uVwX5yZ';

type Options = Parameters<typeof sessionCookie>[0];
const cookieWith = (options: Partial<Options> = {}) =>
  sessionCookie({
    secrets: [secret(SECRET)],
    realm: 'password',
    sameSite: 'strict',
    https: false,
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
  test('that was set gives its id, also among other cookies', () => {
    const sent = sentBack(cookie.set(ID));
    expect(cookie.read(sent)).toBe(ID);
    expect(cookie.read(`a=b; ${sent}; c=d`)).toBe(ID);
  });

  test('is signed by HMAC-SHA-256 with the secret and the mode of sign-in', () => {
    expect(sentBack(cookie.set(ID))).toBe(signed(ID));
  });

  test.each([
    ['http', false, 'bot_relay_session', ''],
    ['https', true, '__Host-bot_relay_session', '; Secure'],
  ] as const)('has its name and its flags over %s', (_which, https, name, secure) => {
    for (const sameSite of ['strict', 'lax', 'none'] as const) {
      const own = cookieWith({ https, sameSite });
      const [pair, ...flags] = own.set(ID).split('; ');
      const written = sameSite[0]?.toUpperCase() + sameSite.slice(1);
      expect(pair).toMatch(new RegExp(`^${name}=[\\w-]{32}\\.[\\w-]{43}$`));
      expect(flags.sort()).toEqual(
        ['HttpOnly', 'Path=/', `SameSite=${written}`, ...(secure ? ['Secure'] : [])].sort(),
      );
      expect(own.read(pair)).toBe(ID);
      expect(own.clear()).toMatch(new RegExp(`^${name}=;.*Expires=Thu, 01 Jan 1970 00:00:00 GMT`));
      expect(own.read(sentBack(own.clear()))).toBeUndefined();
    }
  });

  test('is verified with each of the secrets, and signed with the first', () => {
    const both = cookieWith({ secrets: [secret(OTHER), secret(SECRET)] });
    expect(both.read(signed(ID))).toBe(ID);
    expect(both.read(signed(ID, `${OTHER} password`))).toBe(ID);
    expect(sentBack(both.set(ID))).toBe(signed(ID, `${OTHER} password`));
    expect(cookie.read(sentBack(both.set(ID)))).toBeUndefined();
  });

  test('of another realm is refused', () => {
    expect(cookieWith({ realm: 'guest' }).read(signed(ID))).toBeUndefined();
    expect(cookie.read(signed(ID, `${SECRET} guest`))).toBeUndefined();
    expect(cookie.read(signed(ID, SECRET))).toBeUndefined();
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

  test('is refused if its signature is another base64url text of the same bytes', () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const signature = signatureOf(ID);
    const spellings = [...alphabet].map((last) => signature.slice(0, -1) + last);
    const read = spellings.filter((each) => cookie.read(headerOf(`${ID}.${each}`)));
    expect(read).toEqual([signature]);
    const base64 = Buffer.from(signature, 'base64url').toString('base64');
    for (const each of [`${signature}=`, `${signature} `, ` ${signature}`, base64])
      expect(cookie.read(headerOf(`${ID}.${each}`))).toBeUndefined();
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
});
