import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../support/identity-provider.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';

const PUBLIC_URL = 'http://app.example.com';
let provider: IdentityProviderServer;
let relay: TestRelay;
afterEach(async () => {
  await relay.close();
  await provider.close();
});

describe('signing in at the identity provider', () => {
  test('leads there, back, and to a session', async () => {
    provider = await startIdentityProvider(PUBLIC_URL);
    relay = await startRelay('http://127.0.0.1:9', {
      AUTH_MODE: 'oidc',
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: CLIENT.id,
      OIDC_CLIENT_SECRET: CLIENT.secret,
      OIDC_SCOPES: 'openid profile groups',
      OIDC_REQUIRED_CLAIM: 'groups:chat-users',
    });
    const jar = new Jar();
    const begun = await fetch(`${relay.url}/auth/login?returnTo=/chat`, { redirect: 'manual' });
    console.log(begun.status, await begun.clone().text(), [...begun.headers], relay.logs);
    jar.take(begun);
    const back = await signInAtProvider(begun.headers.get('location') as string, 'ada');
    const ended = await fetch(relay.url + back.pathname + back.search, {
      redirect: 'manual',
      headers: { cookie: jar.header() },
    });
    console.log(ended.status, await ended.clone().text(), [...ended.headers], relay.logs);
    jar.take(ended);
    const who = await call(relay.port, '/auth/session', { headers: { cookie: jar.header() } });
    console.log(who);
    const out = await call(relay.port, '/auth/logout', { method: 'POST', headers: { cookie: jar.header() } });
    console.log(out);
    expect(1).toBe(1);
  });
});
