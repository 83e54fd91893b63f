import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

const PROXIES: [string, Record<string, string>][] = [
  ['missing', {}],
  ['https', { 'X-Forwarded-Proto': 'https' }],
  ['http', { 'X-Forwarded-Proto': 'http' }],
  ['https,http', { 'X-Forwarded-Proto': 'https,http' }],
];
const SETTINGS: [string, Record<string, string>][] = [
  ['an untrusted proxy', {}],
  ['a trusted proxy', { TRUST_PROXY: '1' }],
];

const login = (relay: TestRelay, headers: Record<string, string>) =>
  call(relay.port, '/auth/login', {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: JSON.stringify({ username: USER.name, password: CANARY.password }),
  });

const flagsOf = (cookie: string) => cookie.split('; ').slice(1).sort();
const nameOf = (cookie: string) => cookie.split('=')[0];

describe.each(SETTINGS)('behind %s', (_hop, environment) => {
  let http: TestRelay;
  let https: TestRelay;
  beforeAll(async () => {
    http = await startRelay('http://127.0.0.1:9', environment);
    https = await startRelay('http://127.0.0.1:9', { ...environment, PUBLIC_URL: 'https://app.example.com' });
  });
  afterAll(() => Promise.all([http.close(), https.close()]));

  test.each(PROXIES)(
    'with X-Forwarded-Proto %s the cookie’s flags follow PUBLIC_URL',
    async (_proto, headers) => {
      const [plain, secure] = await Promise.all([login(http, headers), login(https, headers)]);
      const [cookie = '', ...more] = plain.headers['set-cookie'] ?? [];
      expect(more).toEqual([]);
      expect(nameOf(cookie)).toBe('bot_relay_session');
      expect(flagsOf(cookie)).toEqual(['HttpOnly', 'Path=/', 'SameSite=Strict']);
      const [secureCookie = '', ...moreSecure] = secure.headers['set-cookie'] ?? [];
      expect(moreSecure).toEqual([]);
      expect(nameOf(secureCookie)).toBe('__Host-bot_relay_session');
      expect(flagsOf(secureCookie)).toEqual(['HttpOnly', 'Path=/', 'SameSite=Strict', 'Secure']);
    },
  );
});

describe('the cookie of an https relay', () => {
  test('is set over http behind a proxy, and is removed with the same name and flags at logout', async () => {
    const relay = await startRelay('http://127.0.0.1:9', {
      PUBLIC_URL: 'https://app.example.com',
      COOKIE_SAME_SITE: 'none',
    });
    const [cookie = ''] = (await login(relay, {})).headers['set-cookie'] ?? [];
    expect(flagsOf(cookie)).toEqual(['HttpOnly', 'Path=/', 'SameSite=None', 'Secure']);
    const headers = { Cookie: cookie.split(';')[0] };
    expect(await call(relay.port, '/auth/session', { headers })).toMatchObject({ status: 200 });
    const { status, headers: after } = await call(relay.port, '/auth/logout', { method: 'POST', headers });
    await relay.close();
    expect(status).toBe(204);
    expect(after['set-cookie']).toHaveLength(1);
    const removed = after['set-cookie']?.[0] as string;
    expect(removed).toMatch(/^__Host-bot_relay_session=;/);
    expect(flagsOf(removed)).toEqual([
      'Expires=Thu, 01 Jan 1970 00:00:00 GMT',
      'HttpOnly',
      'Path=/',
      'SameSite=None',
      'Secure',
    ]);
  });
});
