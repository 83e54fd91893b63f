import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { localPath } from '../../src/authenticate/oidc/return-to.ts';
import { type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';

const OWN = 'https://own.example';
const AUTH = '/chat-api/auth';
const AUTH_DECODED = /^\/chat-api\/auth(\/|$)/i;

/** `text` decoded as by a server that leaves what is broken. */
const decoded = (text: string) =>
  text.replace(/(%[0-9a-f]{2})+/gi, (bytes) => Buffer.from(bytes.replaceAll('%', ''), 'hex').toString());

/**
 * Why a browser could come to another place than a path of this origin by `location`; undefined if it cannot. Written in
 * another way than the code: all readings are tried of servers that decode up to three times, of those that take
 * characters of other widths as plain ones, and of those that drop what cannot be seen.
 */
function dangerOf(location: string): string | undefined {
  if (!/^\/[\x21-\x7e]*$/.test(location) || location.includes('\\')) return 'not a path in visible ASCII';
  if (/\p{Cc}/u.test(decoded(location))) return 'a control character';
  const path = location.replace(/[?#].*$/, '');
  const times = [path, decoded(path), decoded(decoded(path)), decoded(decoded(decoded(path)))];
  const readings = times
    .flatMap((one) => [one, one.normalize('NFKC'), one.replace(/[\p{C}\p{Z}]/gu, '')])
    .flatMap((one) => [one, one.replaceAll('\\', '/')])
    .flatMap((one) => [one, one.replace(/[?#]/g, '_')]);
  for (const reading of readings) {
    if (!URL.canParse(reading, OWN) || new URL(reading, OWN).origin !== OWN) return 'another origin';
    if (reading.includes('//')) return 'what a server may take for a host';
  }
  const paths = readings.filter((one) => !/[?#]/.test(one)).map((one) => new URL(one, OWN).pathname);
  if (paths.some((one) => AUTH_DECODED.test(one))) return 'the next sign-in';
  return undefined;
}

const split = (text: string) => text.trim().split(/\s+/);

/** One for each rule, and those that other programs have got wrong. */
const HOSTILE = [
  ...split(String.raw`
    . ?next=/chat # chat evil.example @evil.example null %2fchat // //evil.example ///evil.example //[::1]/
    //own.example@evil.example /chat//evil.example \\evil.example /\evil.example /\/evil.example /chat\evil
    /chat?next=\evil /chat#\evil https://evil.example HTTPS:evil.example javascript:alert(1) data:text/html,x
    https://own.example/chat /%e2%80%8b/evil /%25e2%2580%258b/evil /%ef%bc%8fevil /%EF%BC%BCevil /%ef%b9%a8evil
    /%c2%80 /%e2%80%a8/evil /%e2%80%a9/evil /%c2%ad/evil /%25c2%25ad /%f3%a0%80%81/evil /%2fevil.example
    /%252fevil.example /%25252fevil.example /%2525252fevil.example /chat%2f%2fevil /%5cevil.example
    /%255cevil.example /chat%5c..%5cevil /%2%66evil /%%32%66evil /%00 /%0d%0aSet-Cookie:a=b /chat?a=%0d%0aX:1
    /chat?a=%250d%250aX:1 /chat#%0a /%257f /%1b[2J /%c0%afevil /%c0%ae%c0%ae/x /%ed%a0%80/x /%ff /%e2%80
    /%25c0%25afevil /% /%zz /%252 /%u2f /. /.. /./x /chat/.. /chat/../x /%2e /%2e%2e/x /.%2e/x /%252e%252e/x
    /..%2fx /%ef%bc%8e%ef%bc%8e/x /%e2%80%a5/x /chat/..?x=1 /chat/..#x /chat%2f..%2fx
    /chat-api/auth /chat-api/auth/ /chat-api/auth?x=1 /chat-api/auth#x /chat-api/auth/login?returnTo=/chat
    /chat-api/AUTH/x /chat-api%2fauth /chat-api%252fauth /chat-api/%61uth/x /chat-api/%2561uth /chat-api//auth
    /chat-api/%ef%bd%81uth/login /chat-api/./auth /x/../chat-api/auth /chat%2dapi/auth/login`),
  ...[
    '',
    ' /chat',
    '\t//evil.example',
    '/\t/evil.example',
    '/chat room',
    '/chat\0',
    '/chat?a=\tb',
    '/chat#a\nb',
  ],
  ...[
    '/\x7f',
    '/\u200b/evil.example',
    '/b\u00fccher',
    '/\ufeff/evil',
    '/chat\u202etxt',
    '/\uff0fevil',
    '/\u{1f600}',
  ],
  ...[`/${'a'.repeat(512)}`, `/chat?q=${'a'.repeat(505)}`, `/${'"'.repeat(256)}`, `/${'/'.repeat(600)}`],
];

const GOOD = [
  ...split(`
    / /chat /chat/ /chat?room=7&tab=a#message-12 /?room=7 /#room /chat? /chat# /chat#/rooms/7 /chat?rate=100%25
    /two%20words/and%20more /chat?q=a+b /b%C3%BCcher/%E4%B8%AD%E6%96%87 /%F0%9F%98%80 /chat#https://elsewhere.example
    /chat?next=https://elsewhere.example/x?y=z /chat?next=%2F%2Felsewhere.example /chat?path=a%2f..%2fb
    /chat?a=%5B1%5D&b[]=2 /a/b%2Fc/d /files/.hidden /files/a..b/... /.well-known/x /user@own.example/x:y;v=1,2
    /~ada/(a)'!*$&= /javascript:alert(1) /chat?to=/chat-api/auth/login /chat-api /chat-api/authors
    /chat-api/auth-help /x/chat-api/auth /auth/login`),
  ...[`/${'a'.repeat(511)}`, `/chat?q=${'a'.repeat(504)}`],
];

const PARTS = [
  ...split(String.raw`
    / \ . .. : @ ? # ; % %25 evil.example https: chat chat-api auth AUTH %2f %252f %5c %2e %252e %3f %23 %09
    %ef%bc%8f %ef%bc%8e %e2%80%8b %c2%ad %c0%af %61uth %32%66 %ff %E4%B8%AD %e2%80%a5`),
  ...['\t', ' ', '\uff0f', '\u200b', '\u{1f600}'],
];
const attack = fc.oneof(
  fc.array(fc.constantFrom(...PARTS), { maxLength: 8 }).map((parts) => parts.join('')),
  fc.array(fc.constantFrom(...PARTS), { maxLength: 6 }).map((parts) => `/${parts.join('')}`),
  fc.string({ unit: 'binary' }).map((text) => `/${text}`),
);
const words = (characters: string) => fc.string({ unit: fc.constantFrom(...characters), maxLength: 12 });
/** Paths of applications: any words, encoded; their queries and fragments may hold whatever is visible. */
const harmless = fc
  .tuple(
    fc.array(
      words("aZ7-_.~ü中😀 '()*+,").map((word) => encodeURIComponent(`x${word}`)),
      { maxLength: 5 },
    ),
    fc.option(
      words('aZ7/?:@[]&=+.,#"~').map((text) => `?${text}`),
      { nil: '' },
    ),
    fc.option(
      words('aZ7ü/ \\%').map((text) => `#${encodeURIComponent(text)}`),
      { nil: '' },
    ),
  )
  .map(([path, query, fragment]) => `/${path.join('/')}${query}${fragment}`);

describe('the return path of a sign-in', () => {
  test.each(HOSTILE)('is / for %j', (value) => {
    expect(localPath(value, AUTH)).toBe('/');
  });

  test.each(GOOD)('is %s unchanged', (value) => {
    expect([localPath(value, AUTH), dangerOf(value)]).toEqual([value, undefined]);
  });

  test('is / if there is none', () => {
    expect(localPath(null, AUTH)).toBe('/');
  });

  test('is / or unchanged for any text, and on the own origin however it is read', () => {
    let kept = 0;
    const check = (text: string) => {
      const path = localPath(text, AUTH);
      if (path !== '/') kept += 1;
      expect([path === '/' || path === text, dangerOf(path)]).toEqual([true, undefined]);
    };
    fc.assert(fc.property(attack, check), { numRuns: 5_000 });
    // Some are harmless.
    expect(kept).toBeGreaterThan(100);
  });

  test('is unchanged for any harmless path', () => {
    fc.assert(
      fc.property(harmless, (path) => {
        expect([localPath(path, AUTH), dangerOf(path)]).toEqual([path, undefined]);
      }),
    );
  });
});

describe('the end of a sign-in redirects', () => {
  let oidc: Oidc;
  beforeAll(async () => {
    oidc = await startOidc({ environment: { BASE_PATH: '/chat-api' } });
  });
  afterAll(() => oidc.close());

  const queryFor = (value: string) => `?returnTo=${encodeURIComponent(value)}`;
  test.each([
    [queryFor('/chat/room?id=7&x=a%20b#message'), '/chat/room?id=7&x=a%20b#message'],
    [queryFor('/b%C3%BCcher'), '/b%C3%BCcher'],
    [queryFor('/auth/login'), '/auth/login'],
    ['?other=1&returnTo=/chat&prompt=none', '/chat'],
    ['', '/'],
    ['?returnTo', '/'],
    ['?returnTo[]=/chat', '/'],
    ['?ReturnTo=/chat', '/'],
    ['?returnTo=/%0d%0aSet-Cookie:a=b', '/'],
    ['?returnTo=/chat%ff', '/'],
    ['?returnTo=//evil.example&returnTo=/chat', '/'],
    [queryFor('/chat-api/auth/login'), '/'],
  ])('for the query %j to %s', async (query, path) => {
    const browser = oidc.browser();
    const back = await browser.atProvider(await browser.begin({ query }));
    // A returnTo in the callback's query has no effect.
    back.searchParams.set('returnTo', 'https://evil.example/');
    expect(await browser.comeBack(back)).toMatchObject({ status: 302, headers: { location: path } });
  });
});
