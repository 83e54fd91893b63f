import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { localPath } from '../../src/authenticate/oidc/return-to.ts';
import { type Answer, call } from '../harness/clients/call.ts';
import { NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';

const NO_SIGN_IN = '/auth/callback?code=x&state=y';
const HTML = 'text/html; charset=utf-8';
const JSON_TYPE = 'application/problem+json';

/** A relay that has never reached its provider, so that `isDown` counts. */
let oidc: Oidc;
let own: Oidc | undefined;
beforeAll(async () => {
  oidc = await startOidc();
  oidc.provider.isDown = true;
});
afterEach(async () => {
  await own?.close();
  own = undefined;
});
afterAll(() => oidc.close());

const ask = (path: string, headers = {}, { port } = oidc.relay) => call(port, path, { headers });
const visit = (path: string, headers = {}, relay = oidc.relay) =>
  ask(path, { ...NAVIGATION, ...headers }, relay);
const linkOf = ({ body }: Answer) => /<a href="([^"]*)">([^<]*)<\/a>/.exec(body)?.slice(1);
const lineOf = ({ headers }: Answer, { relay } = oidc) =>
  relay.logLine(({ requestId, msg }) => msg === 'request' && requestId === headers['x-request-id']);

describe('a sign-in that failed is answered with', () => {
  test.each([
    ['a page', 'a navigation', { 'Sec-Fetch-Mode': 'navigate', Accept: '*/*' }, HTML],
    ['a page', 'an old browser', { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }, HTML],
    ['JSON', 'fetch that accepts pages', { 'Sec-Fetch-Mode': 'same-origin', Accept: 'text/html' }, JSON_TYPE],
    ['JSON', 'a client that prefers JSON', { Accept: 'application/json, text/html;q=0.9' }, JSON_TYPE],
    ['JSON', 'a client that refuses pages', { Accept: 'text/html;q=0, */*' }, JSON_TYPE],
    ['JSON', 'a client with a broken header', { Accept: ';;,=/text/html' }, JSON_TYPE],
    ['JSON', 'a client that accepts anything', { Accept: '*/*' }, JSON_TYPE],
    ['JSON', 'a client without preferences', {}, JSON_TYPE],
  ])('%s to %s', async (_, __, headers, type) => {
    expect(await ask(NO_SIGN_IN, headers)).toMatchObject({ status: 400, headers: { 'content-type': type } });
  });

  test('the same headers, and the same code and cause in the log, for a page and for JSON', async () => {
    const kept = ({ headers }: Answer) => {
      const { 'content-type': _, 'content-length': __, 'content-security-policy': ___, ...others } = headers;
      return { ...others, 'x-request-id': '', date: '' };
    };
    for (const [path, outcome, cause] of [
      ['/auth/login', 'identity_provider_unavailable', expect.stringMatching(/\w/)],
      [NO_SIGN_IN, 'sign_in_failed', 'no_such_sign_in'],
    ] as const) {
      const [json, page] = await Promise.all([ask(path), visit(path)]);
      expect([json, page].map(({ headers }) => headers['content-type'])).toEqual([JSON_TYPE, HTML]);
      expect(kept(page)).toEqual(kept(json));
      const told = async (answer: Answer) => {
        const { status, outcome, cause, route, level } = await lineOf(answer);
        return { status, outcome, cause, route, level };
      };
      expect(await told(page)).toEqual(await told(json));
      expect(await told(page)).toMatchObject({ outcome, cause });
    }
  });
});

describe('the page', () => {
  test('has no script, and a policy that allows only its own style', async () => {
    const { body, headers } = await visit(NO_SIGN_IN);
    const [style = '', ...others] = [...body.matchAll(/<style>([^<]*)<\/style>/g)].map(
      ([, text = '']) => text,
    );
    expect([style === '', others]).toEqual([false, []]);
    const hash = createHash('sha256').update(style).digest('base64');
    expect(String(headers['content-security-policy']).split('; ').sort()).toEqual([
      ...["base-uri 'none'", "default-src 'none'", "form-action 'none'", "frame-ancestors 'none'"],
      `style-src 'sha256-${hash}'`,
    ]);
    expect(headers).toMatchObject({
      ...{ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' },
      ...{ 'x-content-type-options': 'nosniff', 'x-frame-options': 'DENY' },
    });
    expect(body).not.toMatch(/<script|javascript:|\son\w+=|style=|<(img|link|iframe|form|object)\b/i);
  });

  test('shows the problem and the request id', async () => {
    const { body } = await visit(NO_SIGN_IN, { 'X-Request-Id': 'my-request-1' });
    expect(body).toMatch(/^<!doctype html>\n<html lang="en">/);
    expect(body).toContain('<title>The sign-in was not completed</title>');
    expect(body).toContain('This sign-in is over already, took too long, or began in another browser.');
    expect(body).toContain('<code>my-request-1</code>');
  });

  test('shows no data of the request, except a path of this origin in its link', async () => {
    const hostile = '"><script>alert(1)</script>canary-words';
    const query = `state=${encodeURIComponent(hostile)}&error=x&error_description=${encodeURIComponent(hostile)}`;
    for (const { body, headers } of [
      await visit(`/auth/callback?${query}`, { 'X-Request-Id': '<b>canary-words</b>' }),
      await visit(`/auth/callback?returnTo=/canary-words&${query}`),
    ]) {
      expect(body + JSON.stringify(headers)).not.toContain('canary-words');
      expect(body).not.toMatch(/<script|<b>/);
    }
    const page = await visit(`/auth/login?returnTo=${encodeURIComponent(`/${hostile}`)}`);
    expect(page.body.replace(/<a href="[\w/?=%-]+">/, '')).not.toMatch(/canary-words|<script/);
  });

  test('has headers alone for HEAD', async () => {
    const answer = await call(oidc.relay.port, NO_SIGN_IN, { method: 'HEAD', headers: NAVIGATION });
    expect(answer).toMatchObject({ status: 400, body: '', headers: { 'content-type': HTML } });
    expect(Number(answer.headers['content-length'])).toBeGreaterThan(300);
  });
});

describe('its link', () => {
  test.each([
    ['/chat?tab=1&x="<y>', '/auth/login?returnTo=%2Fchat%3Ftab%3D1%26x%3D%22%3Cy%3E'],
    ['//evil.example', '/auth/login?returnTo=%2F'],
  ])('leads to a new sign-in, which returns to %s', async (returnTo, link) => {
    own = await startOidc();
    own.provider.isDown = true;
    const query = `?returnTo=${encodeURIComponent(returnTo)}`;
    expect(linkOf(await visit(`/auth/login${query}`, {}, own.relay))).toEqual([link, 'Try again']);
    // The link works.
    own.provider.isDown = false;
    const browser = own.browser();
    const back = await browser.atProvider(new URL((await browser.get(link)).headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(link.endsWith('%2F') ? '/' : returnTo);
  });

  test('leads a user who is not allowed to a sign-in as somebody else', async () => {
    own = await startOidc({
      environment: { OIDC_SCOPES: 'openid groups', OIDC_REQUIRED_CLAIM: 'groups:chat-users' },
    });
    const browser = own.browser();
    const back = await browser.atProvider(await browser.begin({ query: '?returnTo=/chat' }), 'mallory');
    const page = await browser.comeBack(back, NAVIGATION);
    const link = '/auth/login?returnTo=%2Fchat&amp;prompt=login';
    expect([page.status, linkOf(page)]).toEqual([403, [link, 'Sign in as somebody else']]);
    expect(page.body).toContain('The identity provider knows you, but your account may not use this.');
    expect(page.body).not.toMatch(/mallory|claim_/);
    expect(await lineOf(page, own)).toMatchObject({
      level: 'info',
      cause: 'claim_differs',
      userId: 'mallory',
    });
  });

  test('keeps the return path if there were too many requests, and below the base path', async () => {
    own = await startOidc({ environment: { CLIENT_LIMIT_PER_ADDRESS: '3', BASE_PATH: '/chat-api' } });
    own.provider.isDown = true;
    const { relay } = own;
    const linkAt = async (path: string) => linkOf(await visit(`/chat-api${path}`, {}, relay))?.[0];
    expect(await linkAt('/auth/login?returnTo=/x')).toBe('/chat-api/auth/login?returnTo=%2Fx');
    // A path that would start the next sign-in is left out here, too.
    expect(await linkAt('/auth/login?returnTo=/chat-api/auth/login')).toBe(
      '/chat-api/auth/login?returnTo=%2F',
    );
    // The callback ignores a returnTo in its own query.
    expect(await linkAt('/auth/callback?returnTo=/evil')).toBe('/chat-api/auth/login?returnTo=%2F');
    const page = await visit('/chat-api/auth/login?returnTo=/chat', {}, relay);
    expect([page.status, linkOf(page)?.[0]]).toEqual([429, '/chat-api/auth/login?returnTo=%2Fchat']);
    expect(Number(page.headers['retry-after'])).toBeGreaterThan(0);
    expect(await lineOf(page, own)).toMatchObject({ status: 429, outcome: 'too_many_attempts' });
  });

  test('keeps the return path at an instance that shuts down, which closes the connection', async () => {
    own = await startOidc();
    own.relay.parts.lifecycle.enter('draining');
    const page = await visit('/auth/login?returnTo=/chat', {}, own.relay);
    expect(page).toMatchObject({ status: 503, headers: { 'content-type': HTML, 'retry-after': '1' } });
    expect(page.headers.connection).toBe('close');
    expect(linkOf(page)?.[0]).toBe('/auth/login?returnTo=%2Fchat');
  });
});

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

/** At least one for each rule. */
const HOSTILE = [
  ...split(String.raw`
    chat evil.example // //evil.example /chat//evil.example /\evil.example /chat?next=\evil https://evil.example
    javascript:alert(1) /%e2%80%8b/evil /%25e2%2580%258b/evil /%ef%bc%8fevil /%EF%BC%BCevil /%ef%b9%a8evil /%c2%80
    /%e2%80%a8/evil /%e2%80%a9/evil /%2fevil.example /%25252fevil.example /%5cevil.example /%%32%66evil
    /chat?a=%0d%0aX:1 /chat?a=%250d%250aX:1 /chat#%0a /%257f /%c0%afevil /%ed%a0%80/x /%ff /% /%252 /%u2f
    /. /chat/.. /chat/../x /%2e%2e/x /%252e%252e/x /%ef%bc%8e%ef%bc%8e/x /%e2%80%a5/x /chat/..?x=1
    /chat-api/auth /chat-api/auth/ /chat-api/auth?x=1 /chat-api/auth#x /chat-api/AUTH/x /chat-api%252fauth
    /chat-api/%61uth/x /chat-api/%ef%bd%81uth/login /chat-api/./auth`),
  ...['', ' /chat', '/chat room', '/chat\0', '/chat?a=\tb', '/\x7f', '/b\u00fccher', '/\uff0fevil'],
  ...[`/${'a'.repeat(512)}`, `/chat?q=${'a'.repeat(505)}`, `/${'"'.repeat(256)}`],
];

const GOOD = [
  ...split(`
    / /chat /chat/ /chat?room=7&tab=a#message-12 /chat? /chat?rate=100%25 /b%C3%BCcher/%E4%B8%AD%E6%96%87
    /chat?next=https://elsewhere.example/x?y=z /chat?next=%2F%2Felsewhere.example /chat?path=a%2f..%2fb
    /a/b%2Fc/d /files/.hidden /files/a..b/... /user@own.example/x:y;v=1,2 /~ada/(a)'!*$&= /chat-api
    /chat?to=/chat-api/auth/login /chat-api/authors /x/chat-api/auth /auth/login`),
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
  fc.oneof(fc.string({ unit: 'binary-ascii' }), fc.string({ unit: 'grapheme' })).map((text) => `/${text}`),
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
  test('is / for each path that leads elsewhere for somebody, and for none', () => {
    for (const value of [...HOSTILE, null]) expect([value, localPath(value, AUTH)]).toEqual([value, '/']);
  });

  test('is unchanged for each good path, however long', () => {
    for (const value of GOOD) expect([localPath(value, AUTH), dangerOf(value)]).toEqual([value, undefined]);
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

  test.each([
    ['?returnTo=%2Fchat%2Froom%3Fid%3D7%26x%3Da%2520b%23message', '/chat/room?id=7&x=a%20b#message'],
    ['?other=1&returnTo=/chat&prompt=none', '/chat'],
    ['', '/'],
    ['?returnTo[]=/chat', '/'],
    ['?returnTo=//evil.example&returnTo=/chat', '/'],
    ['?returnTo=/chat-api/auth/login', '/'],
  ])('is, for the query %j, %s', async (query, path) => {
    own = await startOidc({ environment: { BASE_PATH: '/chat-api' } });
    const browser = own.browser();
    const back = await browser.atProvider(await browser.begin({ query }));
    // A returnTo in the callback's query has no effect.
    back.searchParams.set('returnTo', 'https://evil.example/');
    expect(await browser.comeBack(back)).toMatchObject({ status: 302, headers: { location: path } });
  });
});
