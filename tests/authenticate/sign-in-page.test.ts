import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';

const NO_SIGN_IN = '/auth/callback?code=x&state=y';
const HTML = 'text/html; charset=utf-8';
const JSON_TYPE = 'application/problem+json';

let oidc: Oidc;
beforeEach(async () => {
  oidc = await startOidc();
});
afterEach(() => oidc.close());

const ask = (path: string, headers = {}) => call(oidc.relay.port, path, { headers });
const visit = (path: string, headers = {}) => ask(path, { ...NAVIGATION, ...headers });
const linkOf = ({ body }: Answer) => /<a href="([^"]*)">([^<]*)<\/a>/.exec(body)?.slice(1);
const requestLine = (code: string, route: string) =>
  oidc.relay.logLine(({ outcome, route: of }) => outcome === code && of === route);

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
    oidc.provider.isDown = true;
    expect(await ask('/auth/login', headers)).toMatchObject({
      status: 503,
      headers: { 'content-type': type, 'retry-after': '5' },
    });
  });

  test('the same headers, and the same code and cause in the log, for a page and for JSON', async () => {
    oidc.provider.isDown = true;
    const answers = [
      await ask('/auth/login'),
      await visit('/auth/login'),
      await ask(NO_SIGN_IN),
      await visit(NO_SIGN_IN),
    ];
    const ids = answers.map(({ headers }) => headers['x-request-id']);
    await oidc.relay.logLine(({ requestId, msg }) => msg === 'request' && requestId === ids.at(-1));
    const lines = oidc.relay.logs.filter(({ msg }) => msg === 'request');
    const told = lines.map(({ status, outcome, cause, route, level }) => ({
      status,
      outcome,
      cause,
      route,
      level,
    }));
    expect(told).toHaveLength(4);
    expect(told[1]).toEqual(told[0]);
    expect(told[3]).toEqual(told[2]);
    expect(told[0]).toMatchObject({
      outcome: 'identity_provider_unavailable',
      cause: expect.stringMatching(/\w/),
    });
    expect(told[2]).toMatchObject({ outcome: 'sign_in_failed', cause: 'no_such_sign_in' });
    const kept = ({ headers }: Answer) => {
      const { 'content-type': _, 'content-length': __, 'content-security-policy': ___, ...others } = headers;
      return { ...others, 'x-request-id': '', date: '' };
    };
    expect(kept(answers[1] as Answer)).toEqual(kept(answers[0] as Answer));
    expect(kept(answers[3] as Answer)).toEqual(kept(answers[2] as Answer));
  });
});

describe('the page', () => {
  test('has no script, and a policy that allows only its own style', async () => {
    const { body, headers } = await visit(NO_SIGN_IN);
    const styles = [...body.matchAll(/<style>([^<]*)<\/style>/g)].map(([, style = '']) => style);
    expect(styles).toHaveLength(1);
    const hash = createHash('sha256')
      .update(styles[0] as string)
      .digest('base64');
    expect(String(headers['content-security-policy']).split('; ').sort()).toEqual([
      "base-uri 'none'",
      "default-src 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      `style-src 'sha256-${hash}'`,
    ]);
    expect(headers).toMatchObject({
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
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

  test('shows no data of the request', async () => {
    const hostile = '"><script>alert(1)</script>canary-words';
    const query = `state=${encodeURIComponent(hostile)}&error=x&error_description=${encodeURIComponent(hostile)}`;
    const answers = [
      await visit(`/auth/callback?${query}`, { 'X-Request-Id': '<b>canary-words</b>' }),
      await visit(`/auth/callback?returnTo=/canary-words&${query}`),
    ];
    for (const { body, headers } of answers) {
      expect(body + JSON.stringify(headers)).not.toContain('canary-words');
      expect(body).not.toMatch(/<script|<b>/);
    }
    // Except a path of this origin, which is a part of the link.
    oidc.provider.isDown = true;
    const page = await visit(`/auth/login?returnTo=${encodeURIComponent(`/${hostile}`)}`);
    expect(page.body.replace(/<a href="[\w/?=%-]+">/, '')).not.toMatch(/canary-words|<script/);
  });
});

describe('its link', () => {
  test.each([
    ['/chat?tab=1&x="<y>', '/auth/login?returnTo=%2Fchat%3Ftab%3D1%26x%3D%22%3Cy%3E'],
    ['/it%27s', '/auth/login?returnTo=%2Fit%2527s'],
    ['//evil.example', '/auth/login?returnTo=%2F'],
    ['javascript:alert(1)', '/auth/login?returnTo=%2F'],
    ['', '/auth/login?returnTo=%2F'],
  ])('leads to a new sign-in, which returns to %s', async (returnTo, link) => {
    oidc.provider.isDown = true;
    const query = returnTo && `?returnTo=${encodeURIComponent(returnTo)}`;
    const page = await visit(`/auth/login${query}`);
    expect(linkOf(page)).toEqual([link, 'Try again']);
    // The link works.
    oidc.provider.isDown = false;
    const browser = oidc.browser();
    const back = await browser.atProvider(new URL((await browser.get(link)).headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(link.endsWith('%2F') ? '/' : returnTo);
  });

  test('keeps the return path if the sign-in fails at its end', async () => {
    const browser = oidc.browser();
    const back = await browser.atProvider(await browser.begin({ query: '?returnTo=/chat' }));
    oidc.provider.isDown = true;
    const page = await browser.comeBack(back, NAVIGATION);
    expect([page.status, linkOf(page)]).toEqual([503, ['/auth/login?returnTo=%2Fchat', 'Try again']]);
  });

  test('keeps the return path if there were too many requests', async () => {
    await oidc.close();
    oidc = await startOidc({ environment: { CLIENT_LIMIT_PER_ADDRESS: '1' } });
    await visit('/auth/login');
    const page = await visit('/auth/login?returnTo=/chat');
    expect([page.status, linkOf(page)]).toEqual([429, ['/auth/login?returnTo=%2Fchat', 'Try again']]);
    expect(Number(page.headers['retry-after'])).toBeGreaterThan(0);
    expect(await requestLine('too_many_attempts', '/auth/login')).toMatchObject({ status: 429 });
    // The callback ignores a returnTo in its own query.
    expect(linkOf(await visit('/auth/callback?returnTo=/evil'))?.[0]).toBe('/auth/login?returnTo=%2F');
  });

  test('is below the base path', async () => {
    await oidc.close();
    oidc = await startOidc({ environment: { BASE_PATH: '/chat-api' } });
    oidc.provider.isDown = true;
    const page = await visit('/chat-api/auth/login?returnTo=/x');
    expect(linkOf(page)?.[0]).toBe('/chat-api/auth/login?returnTo=%2Fx');
    // A path that would start the next sign-in is left out here, too.
    const circle = await visit('/chat-api/auth/login?returnTo=/chat-api/auth/login');
    expect(linkOf(circle)?.[0]).toBe('/chat-api/auth/login?returnTo=%2F');
  });
});

describe('a navigation', () => {
  test('to an instance that shuts down gets Retry-After, and the connection is closed', async () => {
    oidc.relay.lifecycle.enter('draining');
    const page = await visit('/auth/login?returnTo=/chat');
    expect(page).toMatchObject({ status: 503, headers: { 'content-type': HTML, 'retry-after': '1' } });
    expect(page.headers.connection).toBe('close');
    expect(linkOf(page)?.[0]).toBe('/auth/login?returnTo=%2Fchat');
  });

  test('with another method gets the allowed ones', async () => {
    for (const name of ['login', 'callback']) {
      const page = await call(oidc.relay.port, `/auth/${name}`, { method: 'POST', headers: NAVIGATION });
      expect([page.status, page.headers.allow]).toEqual([405, 'GET, HEAD']);
    }
  });

  test('to any other path gets JSON', async () => {
    expectProblem(await visit('/auth/session'), 401, 'unauthenticated');
    expectProblem(await visit('/auth/login/x'), 404, 'not_found');
    expectProblem(await visit('/'), 404, 'not_found');
  });

  test('with HEAD gets the headers of the page', async () => {
    const answer = await call(oidc.relay.port, NO_SIGN_IN, { method: 'HEAD', headers: NAVIGATION });
    expect(answer).toMatchObject({ status: 400, body: '', headers: { 'content-type': HTML } });
    expect(Number(answer.headers['content-length'])).toBeGreaterThan(300);
  });
});
