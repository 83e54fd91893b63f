import { afterEach, describe, expect, test } from '@jest/globals';
import type { Configuration } from 'oidc-provider';
import { expectProblem } from '../support/call.ts';
import { NAVIGATION, type Oidc, startOidc } from '../support/oidc-relay.ts';
import { stored } from '../support/sessions.ts';

let oidc: Oidc;
afterEach(() => oidc.close());

interface Rule {
  readonly rule: string;
  readonly claims?: Record<string, unknown>;
  /** Whether the provider puts the claims into the ID token. */
  readonly inIdToken?: boolean;
}

async function start({ rule, claims = {}, inIdToken = false }: Rule) {
  const provider: Configuration = {
    conformIdTokenClaims: !inIdToken,
    claims: { openid: ['sub'], profile: ['name'], groups: Object.keys(claims) },
    scopes: ['openid', 'profile', 'groups'],
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id, name: 'Ada', ...claims }) }),
  };
  const environment = { OIDC_SCOPES: 'openid profile groups', OIDC_REQUIRED_CLAIM: rule };
  oidc = await startOidc({ environment, provider });
  return oidc.browser();
}
const usesUserInfo = () => oidc.provider.asked.includes('/me');

describe.each([
  ['the ID token', true],
  ['userinfo', false],
])('a required claim in %s', (_, inIdToken) => {
  test.each([
    ['a text', 'chat-users', 'groups:chat-users'],
    ['one of a list', ['a', 'chat-users', 'b'], 'groups:chat-users'],
    ['true', true, 'groups:true'],
    ['false', false, 'groups:false'],
    ['a number', 7, 'groups:7'],
  ])('is met by %s', async (_name, groups, rule) => {
    const browser = await start({ rule, claims: { groups }, inIdToken });
    expect(await browser.signIn()).toMatchObject({ status: 302, headers: { location: '/' } });
    expect((await browser.session()).status).toBe(200);
    expect(usesUserInfo()).toBe(!inIdToken);
  });

  test.each([
    ['another text', 'other', 'groups:chat-users'],
    ['a longer text', 'chat-users-2', 'groups:chat-users'],
    ['another case', 'Chat-Users', 'groups:chat-users'],
    ['texts in one', 'a chat-users b', 'groups:chat-users'],
    ['a list without it', ['a', 'chat-users-2'], 'groups:chat-users'],
    ['an empty list', [], 'groups:chat-users'],
    ['a list within a list', [['chat-users']], 'groups:chat-users'],
    ['an object', { 'chat-users': true }, 'groups:chat-users'],
    ['null', null, 'groups:null'],
    ['false', false, 'groups:true'],
  ])('is not met by %s', async (_name, groups, rule) => {
    const browser = await start({ rule, claims: { groups }, inIdToken });
    expectProblem(await browser.signIn(), 403, 'not_allowed');
    expect(browser.sessionId()).toBeUndefined();
    expect((await browser.session()).status).toBe(401);
  });
});

describe('a user without the required claim', () => {
  test('has no session, and a page that leads to the sign-in as somebody else', async () => {
    oidc = await startOidc({
      environment: { OIDC_SCOPES: 'openid profile groups', OIDC_REQUIRED_CLAIM: 'groups:chat-users' },
    });
    const browser = oidc.browser();
    const back = await browser.atProvider(await browser.begin({ query: '?returnTo=/chat' }), 'mallory');
    const page = await browser.comeBack(back, NAVIGATION);
    expect(page).toMatchObject({ status: 403, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.headers).not.toHaveProperty('retry-after');
    expect(page.body).toContain('The identity provider knows you, but your account may not use this.');
    const [, link = '', words] = /<a href="([^"]*)">([^<]*)<\/a>/.exec(page.body) ?? [];
    expect([link, words]).toEqual([
      '/auth/login?returnTo=%2Fchat&amp;prompt=login',
      'Sign in as somebody else',
    ]);
    expect([browser.sessionId(), browser.flows()]).toEqual([undefined, []]);
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ status: 403, outcome: 'not_allowed' });
    expect(line).not.toHaveProperty('userId');

    // Still signed in at the provider as mallory, and asked all the same.
    const url = new URL((await browser.get(link.replace('&amp;', '&'))).headers.location as string);
    expect(url.searchParams.get('prompt')).toBe('login');
    const again = await browser.comeBack(await browser.atProvider(url, 'ada'));
    expect(again).toMatchObject({ status: 302, headers: { location: '/chat' } });
    expect(JSON.parse((await browser.session()).body).user.id).toBe('ada');
  });

  test('does not end the session that the browser had', async () => {
    oidc = await startOidc({
      environment: { OIDC_SCOPES: 'openid profile groups', OIDC_REQUIRED_CLAIM: 'groups:chat-users' },
    });
    const browser = oidc.browser();
    await browser.signIn('ada');
    const before = browser.sessionId();
    expect((await browser.signIn('mallory', { query: '?prompt=login' })).status).toBe(403);
    expect(browser.sessionId()).toBe(before);
    expect(await stored(oidc.relay.sessions, before as string)).not.toBeNull();
  });
});

describe('a required claim', () => {
  test('that nobody gives lets nobody in', async () => {
    const browser = await start({ rule: 'groups:chat-users' });
    expectProblem(await browser.signIn(), 403, 'not_allowed');
  });

  test('with a name like a URL is read up to its last colon', async () => {
    const name = 'https://example.com/groups';
    const browser = await start({ rule: `${name}:chat-users`, claims: { [name]: ['chat-users'] } });
    expect((await browser.signIn()).status).toBe(302);
  });

  test.each(['constructor:Object', '__proto__:x', 'toString:x'])(
    'is not met by what every object has: %s',
    async (rule) => {
      const browser = await start({ rule });
      expectProblem(await browser.signIn(), 403, 'not_allowed');
    },
  );

  test('that the ID token denies is not met by what userinfo says', async () => {
    const browser = await start({
      rule: 'groups:chat-users',
      claims: { groups: ['others'] },
      inIdToken: true,
    });
    const url = await browser.begin();
    oidc.provider.answers.set('/me', (_req, res) => {
      res.writeHead(200, { 'Content-Type': 'application/json' });
      res.end(JSON.stringify({ sub: 'ada', groups: ['chat-users'] }));
    });
    expectProblem(await browser.comeBack(await browser.atProvider(url)), 403, 'not_allowed');
  });

  test('is not met by what userinfo says of somebody else', async () => {
    const browser = await start({ rule: 'groups:chat-users', claims: { groups: ['others'] } });
    const url = await browser.begin();
    oidc.provider.answers.set('/me', (_req, res) => {
      res.writeHead(200, { 'Content-Type': 'application/json' });
      res.end(JSON.stringify({ sub: 'bob', groups: ['chat-users'] }));
    });
    expect((await browser.comeBack(await browser.atProvider(url))).status).not.toBe(302);
    expect((await browser.session()).status).toBe(401);
  });
});
