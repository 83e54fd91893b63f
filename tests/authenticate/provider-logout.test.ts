import { afterEach, describe, expect, test } from '@jest/globals';
import type { Session } from '../../src/authenticate/sessions/session.ts';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { call } from '../support/call.ts';
import { type FakeProvider, signInAt, signInWith, startFakeProvider } from '../support/fake-provider.ts';
import { freePort } from '../support/free-port.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../support/identity-provider.ts';
import { type Instances, startInstances } from '../support/instances.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';
import { idOf, stored } from '../support/sessions.ts';

const CLEARED = /^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/;

let closing: { close(): Promise<void> }[] = [];
const later = <T extends { close(): Promise<void> }>(one: T): T => {
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
  (await call(relay.port, '/auth/session', { headers: { Cookie: cookie } })).status === 200;

describe('signing out where the provider', () => {
  async function signedIn(environment: Record<string, string> = {}, metadata: Record<string, unknown> = {}) {
    const provider = later(await startFakeProvider());
    Object.assign(provider.metadata, metadata);
    const relay = later(
      await startRelay('http://127.0.0.1:9', { ...signInAt(provider.issuer), ...environment }),
    );
    const { cookie } = await signInWith(relay.port);
    expect(await isLive(relay, cookie)).toBe(true);
    return { provider, relay, cookie };
  }
  const END = 'http://127.0.0.1:9/end?tenant=one';

  test('takes part answers where to go there, and ends the session here', async () => {
    const { relay, cookie } = await signedIn({}, { end_session_endpoint: END });
    expect(Object.keys((await stored(relay.sessions, idOf(cookie))) ?? {}).sort()).toEqual([
      'absoluteExpiresAt',
      'idleExpiresAt',
      'user',
    ]);
    const answer = await logout(relay, cookie);
    expect(answer.status).toBe(200);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    const { logoutUrl, ...more } = JSON.parse(answer.body);
    expect(more).toEqual({});
    expect(logoutUrl.startsWith(END)).toBe(true);
    expect(Object.fromEntries(new URL(logoutUrl).searchParams)).toEqual({
      tenant: 'one',
      client_id: CLIENT.id,
      post_logout_redirect_uri: 'http://app.example.com/',
    });
    expect(await isLive(relay, cookie)).toBe(false);
    expect((await logout(relay, cookie)).status).toBe(401);
  });

  test('asks for the ID token hands it on, and keeps it only then', async () => {
    const { relay, cookie, provider } = await signedIn(
      { OIDC_KEEP_ID_TOKEN: 'true' },
      { end_session_endpoint: END },
    );
    const { logoutUrl } = JSON.parse((await logout(relay, cookie)).body);
    const hint = new URL(logoutUrl).searchParams.get('id_token_hint') as string;
    const claims = JSON.parse(Buffer.from(hint.split('.')[1] as string, 'base64url').toString());
    expect(claims).toMatchObject({ iss: provider.issuer, sub: 'ada' });
  });

  test.each<[string, Record<string, unknown>]>([
    ['does not take part', {}],
    ['says nonsense of it', { end_session_endpoint: 'javascript:alert(1)' }],
  ])('%s leads nowhere', async (_what, metadata) => {
    const { relay, cookie, provider } = await signedIn();
    Object.assign(provider.metadata, metadata);
    expect(await logout(relay, cookie)).toMatchObject({ status: 200, body: '{"logoutUrl":null}' });
    expect(await isLive(relay, cookie)).toBe(false);
  });

  test('was never reached by this instance leads nowhere, and the session is over', async () => {
    const { relay, cookie, provider } = await signedIn({}, { end_session_endpoint: END });
    await provider.close();
    closing = closing.filter((one) => one !== provider);
    const other = later(await startRelay('http://127.0.0.1:9', signInAt(provider.issuer)));
    const data = await stored(relay.sessions, idOf(cookie));
    await other.sessions.set(sessionKey(idOf(cookie)), data as Session);
    expect(await logout(other, cookie)).toMatchObject({ status: 200, body: '{"logoutUrl":null}' });
    expect(await isLive(other, cookie)).toBe(false);
    // The one that knows it needs nobody for that.
    expect((await logout(relay, cookie)).body).toContain('127.0.0.1:9/end');
  });

  test('is not asked: of all of the user, by logout-all', async () => {
    const { relay, cookie } = await signedIn({}, { end_session_endpoint: END });
    const other = (await signInWith(relay.port)).cookie;
    const answer = await logout(relay, cookie, '/auth/logout-all');
    expect(answer).toMatchObject({ status: 204, body: '' });
    expect(answer.headers['set-cookie']).toEqual([expect.stringMatching(CLEARED)]);
    expect([await isLive(relay, cookie), await isLive(relay, other)]).toEqual([false, false]);
  });
});

describe('streams of a session', () => {
  test.each(['/auth/logout', '/auth/logout-all'])('end with %s', async (path) => {
    const provider: FakeProvider = later(await startFakeProvider());
    const all: Instances = later(
      await startInstances({ count: 1, shared: false, environment: signInAt(provider.issuer) }),
    );
    const relay = all.relays[0] as TestRelay;
    const { cookie } = await signInWith(relay.port);
    const over = (await all.stream(0, cookie)).over();
    expect((await logout(relay, cookie, path)).status).toBeLessThan(300);
    expect(await over).toMatchObject({ code: 'session_ended', complete: true });
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
    // Its own would refuse to ask anything on this machine where it can.
    provider = later(
      await startIdentityProvider(relayUrl, {
        fetch: (url, { method, headers, body, signal } = {}) =>
          fetch(url, { method, headers, body, signal } as RequestInit),
      }),
    );
    const names = { OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret };
    all = later(
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

  /** Signs out at the provider, beginning at its page; returns where that leads. */
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
    'takes the logout URL, and leads back (OIDC_KEEP_ID_TOKEN=%s)',
    async (keep) => {
      await start({ OIDC_KEEP_ID_TOKEN: keep });
      const { cookie, there } = await signIn('ada');
      const { logoutUrl } = JSON.parse((await logout(relay, cookie)).body);
      expect(new URL(logoutUrl).searchParams.has('id_token_hint')).toBe(keep === 'true');
      expect(await signOutAt(logoutUrl, there)).toBe(`${relayUrl}/`);
    },
  );

  test('that the user signs out of ends the session and its stream here, and no other', async () => {
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
