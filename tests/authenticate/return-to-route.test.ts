import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call } from '../harness/clients/call.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../harness/service/identity-provider.ts';

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

/** Signs in with `query` at the beginning; returns the path to which the callback redirects. */
async function returnPathOf(query: string): Promise<string | undefined> {
  const jar = new Jar();
  const begun = await call(relay.port, `${BASE_PATH}/auth/login${query}`);
  expect(begun.status).toBe(302);
  const cookies = new Headers((begun.headers['set-cookie'] ?? []).map((cookie) => ['set-cookie', cookie]));
  jar.take(new Response(null, { headers: cookies }));
  const back = await signInAtProvider(begun.headers.location as string, 'ada');
  // A returnTo in the callback's query must have no effect.
  const path = `${back.pathname}${back.search}&returnTo=https://evil.example/`;
  const ended = await call(relay.port, path, { headers: { Cookie: jar.header() } });
  expect(ended.status).toBe(302);
  return ended.headers.location;
}

const queryFor = (value: string) => `?returnTo=${encodeURIComponent(value)}`;

describe('the end of a sign-in redirects', () => {
  test.each([
    ['/', queryFor('/')],
    ['/chat/room?id=7&x=a%20b#message', queryFor('/chat/room?id=7&x=a%20b#message')],
    ['/chat?next=https://elsewhere.example/', queryFor('/chat?next=https://elsewhere.example/')],
    ['/b%C3%BCcher', queryFor('/b%C3%BCcher')],
    ['/chat', '?returnTo=/chat'],
    ['/chat', '?other=1&returnTo=%2Fchat&prompt=none'],
    ['/auth/login', queryFor('/auth/login')],
  ])('to %s if returnTo is that path', async (path, query) => {
    expect(await returnPathOf(query)).toBe(path);
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
    [queryFor('/chat-api/auth/login')],
    [queryFor('/chat-api%2fauth/login')],
    [queryFor('/chat/../chat-api/auth/login')],
    [`?returnTo=/${'a'.repeat(600)}`],
  ])('to / for the query %s', async (query) => {
    expect(await returnPathOf(query)).toBe('/');
  });
});
