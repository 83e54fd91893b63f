import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createBotClient } from '../../src/client/session/bot-client.ts';
import { startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay('http://127.0.0.1:9');
});
afterAll(() => relay.close());

describe('in Node.js, a client', () => {
  const bot = { namespace: 'acme', botProviderName: 'helper' };

  test('keeps no cookie: a server may use it for the pages of many users', async () => {
    const client = createBotClient({ baseUrl: relay.url, ...bot });
    expect(await client.signIn(USER.name, USER.password)).toMatchObject({ user: { name: USER.name } });
    expect(await client.session()).toBeUndefined();
  });

  test('keeps the cookies of its one user if it is told to, and forgets them at the sign-out', async () => {
    const client = createBotClient({ baseUrl: relay.url, ...bot, cookies: 'keep' });
    await client.signIn(USER.name, USER.password);
    expect(await client.session()).toMatchObject({ user: { name: USER.name } });
    await client.signOut();
    expect(await client.session()).toBeUndefined();
  });
});
