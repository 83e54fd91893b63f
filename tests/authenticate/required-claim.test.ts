import { afterAll, describe, expect, test } from '@jest/globals';
import type { Configuration } from 'oidc-provider';
import { expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { NAVIGATION, type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import { stored } from '../harness/relay/sessions.ts';

let oidc: Oidc;
/** One provider and relay for each rule and place of the claims. What the user has is that of the test. */
const started = new Map<string, Promise<Oidc>>();
let claimsNow: Record<string, unknown> = {};
/** How many log lines there were when the test began. */
let linesBefore = 0;
afterAll(async () => {
  for (const one of started.values()) await (await one).close();
});

interface Rule {
  readonly rule: string;
  readonly claims?: Record<string, unknown>;
  /** Whether the provider puts the claims into the ID token. */
  readonly inIdToken?: boolean;
}

function startProvider({ rule, names, inIdToken }: { rule: string; names: string[]; inIdToken: boolean }) {
  const provider: Configuration = {
    conformIdTokenClaims: !inIdToken,
    claims: { openid: ['sub'], profile: ['name'], groups: names },
    scopes: ['openid', 'profile', 'groups'],
    findAccount: (_ctx, id) => ({
      accountId: id,
      claims: () => ({ sub: id, name: 'Ada', ...(id === 'mallory' ? { groups: ['others'] } : claimsNow) }),
    }),
  };
  const environment = { OIDC_SCOPES: 'openid profile groups', OIDC_REQUIRED_CLAIM: rule };
  return startOidc({ environment, provider });
}

async function start({ rule, claims = {}, inIdToken = false }: Rule) {
  const parts = { rule, names: Object.keys(claims), inIdToken };
  const name = JSON.stringify(parts);
  const one = started.get(name) ?? startProvider(parts);
  started.set(name, one);
  oidc = await one;
  claimsNow = claims;
  oidc.provider.asked.length = 0;
  oidc.provider.answers.clear();
  linesBefore = oidc.relay.logs.length;
  return oidc.browser();
}
/** The log line of the refused sign-in. */
async function refusal() {
  const isIt = ({ route }: Record<string, unknown>) => route === '/auth/callback';
  await until(() => oidc.relay.logs.slice(linesBefore).some(isIt));
  return oidc.relay.logs.slice(linesBefore).find(isIt);
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
    ['several values in one text', 'a chat-users b', 'groups:chat-users'],
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
    const cause = groups === null ? 'claim_absent' : 'claim_differs';
    expect(await refusal()).toMatchObject({ level: 'info', outcome: 'not_allowed', cause, userId: 'ada' });
  });
});

describe('a user without the required claim', () => {
  test('gets no session, but a page with a link to sign in as somebody else', async () => {
    const browser = await start({ rule: 'groups:chat-users', claims: { groups: ['chat-users'] } });
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
    const line = await refusal();
    expect(line).toMatchObject({ status: 403, outcome: 'not_allowed' });
    expect(line).toMatchObject({ cause: 'claim_differs', userId: 'mallory' });
    expect(page.body).not.toMatch(/mallory|claim_/);

    // Mallory is still signed in at the provider, which asks for the password anyway.
    const url = new URL((await browser.get(link.replace('&amp;', '&'))).headers.location as string);
    expect(url.searchParams.get('prompt')).toBe('login');
    const again = await browser.comeBack(await browser.atProvider(url, 'ada'));
    expect(again).toMatchObject({ status: 302, headers: { location: '/chat' } });
    expect(JSON.parse((await browser.session()).body).user.id).toBe('ada');
  });

  test('does not end the previous session of the browser', async () => {
    const browser = await start({ rule: 'groups:chat-users', claims: { groups: ['chat-users'] } });
    await browser.signIn('ada');
    const before = browser.sessionId();
    expect((await browser.signIn('mallory', { query: '?prompt=login' })).status).toBe(403);
    expect(browser.sessionId()).toBe(before);
    expect(await stored(oidc.relay.sessions, before as string)).not.toBeNull();
  });
});

describe('a required claim', () => {
  test('that the provider does not give lets nobody in, and the log says claim_absent', async () => {
    const browser = await start({ rule: 'groups:chat-users' });
    expectProblem(await browser.signIn(), 403, 'not_allowed');
    expect(await refusal()).toMatchObject({ cause: 'claim_absent', userId: 'ada' });
  });

  test('can have a URL as its name, which ends at the last colon', async () => {
    const name = 'https://example.com/groups';
    const browser = await start({ rule: `${name}:chat-users`, claims: { [name]: ['chat-users'] } });
    expect((await browser.signIn()).status).toBe(302);
  });

  test.each(['constructor:Object', '__proto__:x', 'toString:x'])(
    'is not met by a property of every object: %s',
    async (rule) => {
      const browser = await start({ rule });
      expectProblem(await browser.signIn(), 403, 'not_allowed');
      expect(await refusal()).toMatchObject({ cause: 'claim_absent' });
    },
  );

  test('that differs in the ID token is not met by userinfo', async () => {
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

  test('is not met by the userinfo of another user', async () => {
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
