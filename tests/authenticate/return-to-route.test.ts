import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../support/identity-provider.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';

const BASE_PATH = '/chat-api';
const PUBLIC_URL = 'http://app.example.com';
let provider: IdentityProviderServer;
let relay: TestRelay;
beforeAll(async () => {
  provider = await startIdentityProvider(PUBLIC_URL + BASE_PATH);
  relay = await startRelay('http://127.0.0.1:9', {
    AUTH_MODE: 'oidc',
    BASE_PATH,
    OIDC_ISSUER: provider.issuer,
    OIDC_CLIENT_ID: CLIENT.id,
    OIDC_CLIENT_SECRET: CLIENT.secret,
  });
});
afterAll(async () => {
  await relay.close();
  await provider.close();
});

/** Signs in with `query` at the beginning; returns where the callback leads to. */
async function leadsTo(query: string): Promise<string | undefined> {
  const jar = new Jar();
  const begun = await call(relay.port, `${BASE_PATH}/auth/login${query}`);
  expect(begun.status).toBe(302);
  const cookies = new Headers((begun.headers['set-cookie'] ?? []).map((cookie) => ['set-cookie', cookie]));
  jar.take(new Response(null, { headers: cookies }));
  const back = await signInAtProvider(begun.headers.location as string, 'ada');
  // Nobody can have another place put in on the way back.
  const path = `${back.pathname}${back.search}&returnTo=https://evil.example/`;
  const ended = await call(relay.port, path, { headers: { Cookie: jar.header() } });
  expect(ended.status).toBe(302);
  return ended.headers.location;
}

const asked = (value: string) => `?returnTo=${encodeURIComponent(value)}`;

describe('the end of a sign-in leads', () => {
  test.each([
    ['/', asked('/')],
    ['/chat/room?id=7&x=a%20b#message', asked('/chat/room?id=7&x=a%20b#message')],
    ['/chat?next=https://elsewhere.example/', asked('/chat?next=https://elsewhere.example/')],
    ['/b%C3%BCcher', asked('/b%C3%BCcher')],
    ['/chat', '?returnTo=/chat'],
    ['/chat', '?other=1&returnTo=%2Fchat&prompt=none'],
    ['/auth/login', asked('/auth/login')],
  ])('to %s where that was asked for', async (path, query) => {
    expect(await leadsTo(query)).toBe(path);
  });

  test.each([
    [''],
    ['?'],
    ['?returnTo'],
    ['?returnTo='],
    ['?returnTo[]=/chat'],
    ['?ReturnTo=/chat'],
    ['?returnTo=//evil.example'],
    ['?returnTo=/%5cevil.example'],
    ['?returnTo=%2f%2fevil.example'],
    ['?returnTo=/%252fevil.example'],
    ['?returnTo=/%09/evil.example'],
    ['?returnTo=/%0d%0aSet-Cookie:a=b'],
    ['?returnTo=/chat%0d%0aLocation:%20https://evil.example'],
    ['?returnTo=/chat%ff'],
    ['?returnTo=/b%C3%BCcher'],
    ['?returnTo=https://app.example.com/chat'],
    ['?returnTo=javascript:alert(1)'],
    ['?returnTo=//evil.example&returnTo=/chat'],
    [asked('/chat-api/auth/login')],
    [asked('/chat-api%2fauth/login')],
    [asked('/chat/../chat-api/auth/login')],
    [`?returnTo=/${'a'.repeat(600)}`],
  ])('to / for %s (G15)', async (query) => {
    expect(await leadsTo(query)).toBe('/');
  });
});
