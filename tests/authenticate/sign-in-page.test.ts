import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
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
    ['a page', 'a navigation', { 'Sec-Fetch-Mode': 'navigate' }, HTML],
    ['a page', 'a navigation that accepts anything', { 'Sec-Fetch-Mode': 'navigate', Accept: '*/*' }, HTML],
    ['a page', 'an old browser', { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }, HTML],
    ['JSON', 'fetch', { 'Sec-Fetch-Mode': 'cors', Accept: '*/*' }, JSON_TYPE],
    ['JSON', 'fetch that accepts pages', { 'Sec-Fetch-Mode': 'same-origin', Accept: 'text/html' }, JSON_TYPE],
    ['JSON', 'a client that prefers JSON', { Accept: 'application/json, text/html;q=0.9' }, JSON_TYPE],
    ['JSON', 'a client that refuses pages', { Accept: 'text/html;q=0, */*' }, JSON_TYPE],
    ['JSON', 'a client with a broken header', { Accept: ';;,=/text/html' }, JSON_TYPE],
    ['JSON', 'a client that asks for JSON', { Accept: 'application/json' }, JSON_TYPE],
    ['JSON', 'a client that accepts anything', { Accept: '*/*' }, JSON_TYPE],
    ['JSON', 'a client without preferences', {}, JSON_TYPE],
  ])('%s to %s', async (_, __, headers, type) => {
    expect(await ask(NO_SIGN_IN, headers)).toMatchObject({ status: 400, headers: { 'content-type': type } });
    expect(await ask('/auth/login', headers)).toMatchObject({
      status: 503,
      headers: { 'content-type': type, 'retry-after': '5' },
    });
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
      const [json, page] = [await ask(path), await visit(path)];
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
    ['/it%27s', '/auth/login?returnTo=%2Fit%2527s'],
    ['//evil.example', '/auth/login?returnTo=%2F'],
    ['', '/auth/login?returnTo=%2F'],
  ])('leads to a new sign-in, which returns to %s', async (returnTo, link) => {
    own = await startOidc();
    own.provider.isDown = true;
    const query = returnTo && `?returnTo=${encodeURIComponent(returnTo)}`;
    expect(linkOf(await visit(`/auth/login${query}`, {}, own.relay))).toEqual([link, 'Try again']);
    // The link works.
    own.provider.isDown = false;
    const browser = own.browser();
    const back = await browser.atProvider(new URL((await browser.get(link)).headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(link.endsWith('%2F') ? '/' : returnTo);
  });

  test('keeps the return path if the sign-in fails at its end', async () => {
    own = await startOidc();
    const browser = own.browser();
    const back = await browser.atProvider(await browser.begin({ query: '?returnTo=/chat' }));
    own.provider.isDown = true;
    const page = await browser.comeBack(back, NAVIGATION);
    expect([page.status, linkOf(page)]).toEqual([503, ['/auth/login?returnTo=%2Fchat', 'Try again']]);
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
    own.relay.lifecycle.enter('draining');
    const page = await visit('/auth/login?returnTo=/chat', {}, own.relay);
    expect(page).toMatchObject({ status: 503, headers: { 'content-type': HTML, 'retry-after': '1' } });
    expect(page.headers.connection).toBe('close');
    expect(linkOf(page)?.[0]).toBe('/auth/login?returnTo=%2Fchat');
  });
});
