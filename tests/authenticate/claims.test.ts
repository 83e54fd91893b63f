import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { type Claims, refusalOf, userOf } from '../../src/authenticate/oidc/claims.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { NAVIGATION, startOidc } from '../harness/relay/oidc-relay.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { stored } from '../harness/relay/sessions.ts';
import {
  type FakeProvider,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

const user = (claims: Record<string, unknown>) => userOf({ sub: 'ada', ...claims } as Claims);

describe('the id of a user', () => {
  test.each(['ada', 'a', '00u1|x@example.com', 'Ada Lovelace', '!~', 'x'.repeat(255)])(
    'is the subject: %s',
    (sub) => {
      expect(user({ sub })).toEqual({ id: sub, name: sub.slice(0, 200) });
    },
  );

  test.each([
    ...[
      '',
      ' ',
      ' ada',
      'ada ',
      'ada\n',
      'ada\r\nX-API-KEY: canary',
      'a\0da',
      'a\tda',
      'a\x7fda',
      'adä',
      'a\ud800',
    ],
    ...['x'.repeat(256), 'x'.repeat(1_000_000), 7, ['ada'], null],
  ])('is never %j', (sub) => {
    const options = expect.objectContaining({ level: 'warn' });
    const refusal = { code: 'sign_in_failed', status: 400, cause: 'bad_subject', options };
    expect(() => user({ sub })).toThrow(expect.objectContaining(refusal));
  });
});

describe('the name of a user', () => {
  const email = 'a@example.com';
  test.each([
    ['the name', { name: 'Ada', preferred_username: 'al', email }, 'Ada'],
    ['else the user name', { preferred_username: 'al', email }, 'al'],
    ['else the address', { email }, email],
    ['else the subject', {}, 'ada'],
    ['not an empty one', { name: '', preferred_username: ' \t', email }, email],
    ['not a number', { name: 7 }, 'ada'],
    ['not a list', { name: ['Ada'] }, 'ada'],
    ['not an object', { name: { toString: 'Ada' } }, 'ada'],
    ['not null', { name: null, preferred_username: false }, 'ada'],
    ['without spaces at its ends', { name: '  Ada  L. ' }, 'Ada  L.'],
  ])('is %s', (_, claims, name) => {
    expect(user(claims)).toEqual({ id: 'ada', name });
  });

  test('is cut to 200 UTF-16 units, never within a character, and half a pair is replaced', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 300 }), (text) => {
        const { name } = user({ name: `n${text}n` });
        expect(name.isWellFormed()).toBe(true);
        expect(`n${text}n`.startsWith(name)).toBe(true);
        expect(name.length).toBeGreaterThanOrEqual(Math.min(text.length + 2, 199));
        expect(name.length).toBeLessThanOrEqual(200);
      }),
    );
    expect(user({ name: `n${'😀'.repeat(200)}` }).name).toBe(`n${'😀'.repeat(99)}`);
    expect(user({ name: 'a\ud800b\udc00' }).name).toBe('a\ufffdb\ufffd');
  });
});

describe('a required claim', () => {
  const refusal = (rule: string, claims: Record<string, unknown>) => {
    const at = rule.lastIndexOf(':');
    return refusalOf({ sub: 'ada', ...claims }, { name: rule.slice(0, at), value: rule.slice(at + 1) });
  };

  test.each([
    ['groups:chat-users', 'chat-users'],
    ['groups:chat-users', ['a', 'chat-users', 'b']],
    ['groups:true', true],
    ['groups:false', false],
    ['groups:7', 7],
  ])('%s is met by %j', (rule, groups) => {
    expect(refusal(rule, { groups })).toBeUndefined();
  });

  test.each([
    ...['other', 'chat-users-2', 'Chat-Users', 'a chat-users b', ['a', 'chat-users-2'], [], [['chat-users']]],
    ...[{ 'chat-users': true }, false],
  ])('is not met by %j', (groups) => {
    expect(refusal('groups:chat-users', { groups })).toBe('claim_differs');
  });

  test('is not met by another value, by null, by nothing, or by a property of every object', () => {
    expect(refusal('groups:true', { groups: false })).toBe('claim_differs');
    expect(refusal('groups:null', { groups: null })).toBe('claim_absent');
    for (const rule of ['groups:chat-users', 'constructor:Object', '__proto__:x', 'toString:x'])
      expect(refusal(rule, {})).toBe('claim_absent');
    expect(refusalOf({ sub: 'ada' }, undefined)).toBeUndefined();
  });
});

describe('at a sign-in', () => {
  const MEMBER = { sub: 'ada', name: 'Ada of userinfo', 'https://example.com/groups': ['chat-users'] };
  const OTHER = { 'https://example.com/groups': ['others'] };
  let provider: FakeProvider;
  let relay: TestRelay;
  beforeAll(async () => {
    provider = await startFakeProvider();
    provider.metadata.userinfo_endpoint = provider.issuer + PATHS.userinfo;
    const rule = { OIDC_REQUIRED_CLAIM: 'https://example.com/groups:chat-users' };
    relay = await startRelay('http://127.0.0.1:9', { ...signInAt(provider.issuer), ...rule });
  });
  beforeEach(() => {
    Object.assign(provider, { claims: { name: undefined }, userinfo: { sub: 'ada' }, answers: {} });
    provider.requests.length = 0;
  });
  afterAll(async () => {
    await relay.close();
    await provider.close();
  });

  test('userinfo is fetched with the access token if the ID token lacks a claim', async () => {
    provider.userinfo = MEMBER;
    const { ended, cookie } = await signInWith(relay.port);
    expect(ended.status).toBe(302);
    const shown = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(JSON.parse(shown.body).user).toEqual({ id: 'ada', name: 'Ada of userinfo' });
    const asked = provider.requests.find(({ path }) => path === PATHS.userinfo);
    expect(asked?.headers.authorization).toBe('Bearer an-access-token');
  });

  test('userinfo is not fetched if the ID token has all claims, whose name may be very long', async () => {
    provider.claims = { ...MEMBER, name: 'b'.repeat(100_000) };
    const { ended, cookie } = await signInWith(relay.port);
    expect([ended.status, provider.asked(PATHS.userinfo)]).toEqual([302, 0]);
    const shown = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(JSON.parse(shown.body).user.name).toBe('b'.repeat(200));
  });

  test.each<[string, object, object, number, string, string]>([
    [
      'userinfo that differs',
      { name: undefined },
      { ...MEMBER, ...OTHER },
      403,
      'not_allowed',
      'claim_differs',
    ],
    ['no claim anywhere', { name: undefined }, { sub: 'ada' }, 403, 'not_allowed', 'claim_absent'],
    ['an ID token that differs from userinfo', OTHER, MEMBER, 403, 'not_allowed', 'claim_differs'],
    [
      'userinfo of another user',
      {},
      { ...MEMBER, sub: 'root' },
      400,
      'sign_in_failed',
      expect.any(String) as never,
    ],
    [
      'userinfo of nobody',
      {},
      { ...MEMBER, sub: undefined },
      400,
      'sign_in_failed',
      expect.any(String) as never,
    ],
    [
      'a subject with a control character',
      { ...MEMBER, sub: 'a\x01' },
      {},
      400,
      'sign_in_failed',
      'bad_subject',
    ],
  ])('%s signs nobody in', async (_what, claims, userinfo, status, code, cause) => {
    Object.assign(provider, { claims, userinfo });
    const { ended, cookie } = await signInWith(relay.port);
    const { requestId } = expectProblem(ended, status, code as 'not_allowed');
    expect(cookie).not.toContain('bot_relay_session');
    const line = await relay.logLine((one) => one.msg === 'request' && one.requestId === requestId);
    expect(line).toMatchObject({ outcome: code, cause });
    // Users are named once it is known who they are.
    expect(line.userId).toBe(status === 403 ? 'ada' : undefined);
  });
});

describe('a user without the required claim', () => {
  test('gets no session, but a page with a link to sign in as somebody else', async () => {
    const oidc = await startOidc({
      environment: { OIDC_SCOPES: 'openid profile groups', OIDC_REQUIRED_CLAIM: 'groups:chat-users' },
    });
    const browser = oidc.browser();
    await browser.signIn('ada');
    const before = browser.sessionId() as string;
    const query = '?returnTo=/chat&prompt=login';
    const back = await browser.atProvider(await browser.begin({ query }), 'mallory');
    const page = await browser.comeBack(back, NAVIGATION);
    expect(page).toMatchObject({ status: 403, headers: { 'content-type': 'text/html; charset=utf-8' } });
    expect(page.headers).not.toHaveProperty('retry-after');
    expect(page.body).toContain('The identity provider knows you, but your account may not use this.');
    const [, link = '', words] = /<a href="([^"]*)">([^<]*)<\/a>/.exec(page.body) ?? [];
    expect([link, words]).toEqual([
      '/auth/login?returnTo=%2Fchat&amp;prompt=login',
      'Sign in as somebody else',
    ]);
    expect(page.body).not.toMatch(/mallory|claim_/);
    const line = await oidc.relay.logLine(({ outcome }) => outcome === 'not_allowed');
    expect(line).toMatchObject({ level: 'info', status: 403, cause: 'claim_differs', userId: 'mallory' });
    // The session of the browser before that goes on.
    expect([browser.sessionId(), browser.flows()]).toEqual([before, []]);
    expect(await stored(oidc.relay.sessions, before)).not.toBeNull();

    // Mallory is still signed in at the provider, which asks for the password anyway.
    const url = new URL((await browser.get(link.replace('&amp;', '&'))).headers.location as string);
    expect(url.searchParams.get('prompt')).toBe('login');
    const again = await browser.comeBack(await browser.atProvider(url, 'ada'));
    expect(again).toMatchObject({ status: 302, headers: { location: '/chat' } });
    expect(JSON.parse((await browser.session()).body).user.id).toBe('ada');
    await oidc.close();
  });
});
