import { afterEach, describe, expect, test } from '@jest/globals';
import { type Session, sessionKey } from '../../src/authenticate/sessions/session.ts';
import { call, isSignedIn } from '../harness/clients/call.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';
import {
  type FakeProvider,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../harness/service/identity-provider.ts';

const CLEARED = /^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/;

let closing: { close(): Promise<void> }[] = [];
const closeLater = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.unshift(one);
  return one;
};
afterEach(async () => {
  for (const one of closing) await one.close();
  closing = [];
});

const logout = (relay: TestRelay, cookie: string, path = '/auth/logout') =>
  call(relay.port, path, { method: 'POST', headers: { Cookie: cookie } });
const isLive = async (relay: TestRelay, cookie: string) =>
  isSignedIn(await call(relay.port, '/auth/session', { headers: { Cookie: cookie } }));

describe('signing out with a provider that', () => {
  const END = 'http://127.0.0.1:9/end?tenant=one';
  let provider: FakeProvider;
  let relay: TestRelay;
  async function signedIn(environment: Record<string, string> = {}, metadata: Record<string, unknown> = {}) {
    provider = closeLater(await startFakeProvider());
    Object.assign(provider.metadata, metadata);
    relay = closeLater(
      await startRelay('http://127.0.0.1:9', { ...signInAt(provider.issuer), ...environment }),
    );
    const { cookie } = await signInWith(relay.port);
    expect(await isLive(relay, cookie)).toBe(true);
    return cookie;
  }

  test('supports logout answers with its logout URL, and ends the session', async () => {
    const cookie = await signedIn({}, { end_session_endpoint: END });
    const held = await stored(relay.sessions, idOf(cookie));
    expect(Object.keys(held ?? {}).sort()).toEqual([
      'absoluteExpiresAt',
      'idleExpiresAt',
      'startedAt',
      'user',
    ]);
    const answer = await logout(relay, cookie);
    expect(answer).toMatchObject({ status: 200, headers: { 'cache-control': 'no-store' } });
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    const { logoutUrl, ...more } = JSON.parse(answer.body);
    expect([more, logoutUrl.startsWith(END)]).toEqual([{}, true]);
    expect(Object.fromEntries(new URL(logoutUrl).searchParams)).toEqual({
      tenant: 'one',
      client_id: CLIENT.id,
      post_logout_redirect_uri: 'http://app.example.com/',
    });
    expect(await isLive(relay, cookie)).toBe(false);
    expect((await logout(relay, cookie)).status).toBe(401);
  });

  test('needs the ID token puts it into the logout URL with OIDC_KEEP_ID_TOKEN', async () => {
    const cookie = await signedIn({ OIDC_KEEP_ID_TOKEN: 'true' }, { end_session_endpoint: END });
    const { logoutUrl } = JSON.parse((await logout(relay, cookie)).body);
    const hint = new URL(logoutUrl).searchParams.get('id_token_hint') as string;
    const claims = JSON.parse(Buffer.from(hint.split('.')[1] as string, 'base64url').toString());
    expect(claims).toMatchObject({ iss: provider.issuer, sub: 'ada' });
  });

  test.each<[string, Record<string, unknown>]>([
    ['does not support logout', {}],
    ['has an unusable logout URL', { end_session_endpoint: 'javascript:alert(1)' }],
  ])('%s answers without a logout URL', async (_what, metadata) => {
    const cookie = await signedIn();
    Object.assign(provider.metadata, metadata);
    expect(await logout(relay, cookie)).toMatchObject({ status: 200, body: '{"logoutUrl":null}' });
    expect(await isLive(relay, cookie)).toBe(false);
  });

  test('was never reached by this instance answers without a logout URL, and ends the session', async () => {
    const cookie = await signedIn({}, { end_session_endpoint: END });
    await provider.close();
    closing = closing.filter((one) => one !== provider);
    const other = closeLater(await startRelay('http://127.0.0.1:9', signInAt(provider.issuer)));
    const data = await stored(relay.sessions, idOf(cookie));
    await other.sessions.set(sessionKey(idOf(cookie)), data as Session);
    expect(await logout(other, cookie)).toMatchObject({ status: 200, body: '{"logoutUrl":null}' });
    expect(await isLive(other, cookie)).toBe(false);
    // The instance that has the metadata does not need the provider.
    expect((await logout(relay, cookie)).body).toContain('127.0.0.1:9/end');
  });

  test('supports logout does not need it for logout-all, which ends all sessions of the user', async () => {
    const cookie = await signedIn({}, { end_session_endpoint: END });
    const other = (await signInWith(relay.port)).cookie;
    const answer = await logout(relay, cookie, '/auth/logout-all');
    expect(answer).toMatchObject({ status: 204, body: '' });
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    expect([await isLive(relay, cookie), await isLive(relay, other)]).toEqual([false, false]);
  });
});

describe('a real provider', () => {
  let provider: IdentityProviderServer;
  let all: Instances;
  let relay: TestRelay;
  let relayUrl: string;

  async function start(environment: Record<string, string> = {}): Promise<void> {
    const port = await freePort();
    relayUrl = `http://127.0.0.1:${port}`;
    // The default would refuse requests to this machine.
    provider = closeLater(
      await startIdentityProvider(relayUrl, {
        fetch: (url, { method, headers, body, signal } = {}) =>
          fetch(url, { method, headers, body, signal } as RequestInit),
      }),
    );
    const names = { OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret };
    all = closeLater(
      await startInstances({
        count: 1,
        shared: false,
        environment: {
          ...signInAt(provider.issuer),
          ...names,
          PORT: String(port),
          PUBLIC_URL: relayUrl,
          ...environment,
        },
      }),
    );
    relay = all.relays[0] as TestRelay;
  }

  /** One browser: its cookies at the relay, and those at the provider. */
  async function signIn(name: string) {
    const [here, there] = [new Jar(), new Jar()];
    const visit = async (path: string) => {
      const response = await fetch(relayUrl + path, {
        redirect: 'manual',
        headers: { cookie: here.header(), 'sec-fetch-site': 'same-origin' },
      });
      here.take(response);
      return response;
    };
    const begun = await visit('/auth/login');
    const back = await signInAtProvider(begun.headers.get('location') as string, name, there);
    expect((await visit(back.pathname + back.search)).status).toBe(302);
    expect(await isLive(relay, here.header())).toBe(true);
    return { cookie: here.header(), there };
  }

  /** Signs out at the provider, beginning at its page; returns the address to which it redirects. */
  async function signOutAt(url: string, jar: Jar): Promise<string | null> {
    const asked = await fetch(url, { redirect: 'manual', headers: { cookie: jar.header() } });
    jar.take(asked);
    const html = await asked.text();
    const action = /<form[^>]* action="([^"]+)"/.exec(html)?.[1] as string;
    const xsrf = /name="xsrf" value="(\w+)"/.exec(html)?.[1] as string;
    expect([asked.status, action, xsrf]).toEqual([200, expect.any(String), expect.any(String)]);
    const confirmed = await fetch(action, {
      method: 'POST',
      redirect: 'manual',
      headers: { cookie: jar.header() },
      body: new URLSearchParams({ xsrf, logout: 'yes' }),
    });
    return confirmed.headers.get('location');
  }

  test.each(['false', 'true'])(
    'accepts the logout URL and redirects back with OIDC_KEEP_ID_TOKEN=%s',
    async (keep) => {
      await start({ OIDC_KEEP_ID_TOKEN: keep });
      const { cookie, there } = await signIn('ada');
      const { logoutUrl } = JSON.parse((await logout(relay, cookie)).body);
      expect(new URL(logoutUrl).searchParams.has('id_token_hint')).toBe(keep === 'true');
      expect(await signOutAt(logoutUrl, there)).toBe(`${relayUrl}/`);
    },
  );

  test('ends the session and its stream when the user signs out there, and no other session', async () => {
    await start();
    const [here, elsewhere, bobs] = [await signIn('ada'), await signIn('ada'), await signIn('bob')];
    const [ends, stays] = [await all.stream(0, here.cookie), await all.stream(0, elsewhere.cookie)];
    const over = ends.over();
    await signOutAt(`${provider.issuer}/session/end`, here.there);
    expect(await over).toMatchObject({ code: 'session_ended', complete: true });
    expect(await isLive(relay, here.cookie)).toBe(false);
    expect(await isLive(relay, elsewhere.cookie)).toBe(true);
    expect(await isLive(relay, bobs.cookie)).toBe(true);
    stays.event('data: still here\n\n');
    await stays.client.waitFor('still here');
    const told = await relay.logLine(({ route }) => route === '/auth/backchannel-logout');
    expect(told).toMatchObject({ status: 200, outcome: 'ok' });
  });
});
