import { afterEach, expect, test } from '@jest/globals';
import { call } from '../support/call.ts';
import { freePort } from '../support/free-port.ts';
import {
  CLIENT,
  type IdentityProviderServer,
  Jar,
  signInAtProvider,
  startIdentityProvider,
} from '../support/identity-provider.ts';
import { startProcess, stopProcesses } from '../support/process.ts';

let provider: IdentityProviderServer;
afterEach(async () => {
  await provider.close();
  await stopProcesses([CLIENT.secret]);
});

test('the demo takes the users of an identity provider, with nothing set but what names it', async () => {
  const port = await freePort();
  const origin = `http://localhost:${port}`;
  provider = await startIdentityProvider(origin);
  const relay = startProcess({
    environment: {
      PORT: String(port),
      AUTH_MODE: 'oidc',
      OIDC_ISSUER: provider.issuer,
      OIDC_CLIENT_ID: CLIENT.id,
      OIDC_CLIENT_SECRET: CLIENT.secret,
    },
  });
  await relay.listening();
  const jar = new Jar();
  const visit = async (path: string) => {
    const headers = { cookie: jar.header() };
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual', headers });
    jar.take(response);
    return response.headers.get('location') as string;
  };
  const back = await signInAtProvider(await visit('/auth/login?returnTo=/chat'), 'ada');
  expect(back.origin).toBe(origin);
  expect(await visit(back.pathname + back.search)).toBe('/chat');

  const answer = await call(port, '/generic/ns/demo/bot-provider/echo/message/sse', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie: jar.header() },
    body: '{"text":"hello"}',
  });
  expect(answer.status).toBe(200);
  expect(answer.body).toContain('"text":"You said: hello"');
});
