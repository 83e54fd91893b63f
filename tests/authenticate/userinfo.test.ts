import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  type FakeProvider,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

let provider: FakeProvider;
let relay: TestRelay;
beforeEach(async () => {
  provider = await startFakeProvider();
  provider.metadata.userinfo_endpoint = provider.issuer + PATHS.userinfo;
  provider.claims = { name: undefined };
  relay = await startRelay('http://127.0.0.1:9', {
    ...signInAt(provider.issuer),
    OIDC_REQUIRED_CLAIM: 'groups:chat-users',
  });
});
afterEach(async () => {
  await relay.close();
  await provider.close();
});

const MEMBER = { sub: 'ada', name: 'Ada of userinfo', groups: ['chat-users'] };

describe('userinfo', () => {
  test('is fetched with the access token if the ID token lacks a claim', async () => {
    provider.userinfo = MEMBER;
    const { ended, cookie } = await signInWith(relay.port);
    expect(ended.status).toBe(302);
    const shown = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(JSON.parse(shown.body).user).toEqual({ id: 'ada', name: 'Ada of userinfo' });
    const { headers } = provider.requests.find(({ path }) => path === PATHS.userinfo) as { headers: object };
    expect(headers).toMatchObject({ authorization: 'Bearer an-access-token' });
  });

  test('is not fetched if the ID token has all claims', async () => {
    provider.claims = MEMBER;
    expect((await signInWith(relay.port)).ended.status).toBe(302);
    expect(provider.asked(PATHS.userinfo)).toBe(0);
  });

  test('never replaces a claim of the ID token', async () => {
    provider.claims = { name: undefined, groups: ['others'] };
    provider.userinfo = MEMBER;
    expectProblem((await signInWith(relay.port)).ended, 403, 'not_allowed');
  });

  test.each<[string, Record<string, unknown>]>([
    ['another one', { ...MEMBER, sub: 'root' }],
    ['missing', { ...MEMBER, sub: undefined }],
  ])('signs nobody in if its subject is %s', async (_what, userinfo) => {
    provider.userinfo = userinfo;
    const { ended, cookie } = await signInWith(relay.port);
    expectProblem(ended, 400, 'sign_in_failed');
    expect(cookie).not.toContain('bot_relay_session');
  });

  test('signs nobody in if it is not available, or redirects', async () => {
    for (const status of [500, 302]) {
      provider.answers = {
        [PATHS.userinfo]: (_req, res) => void res.writeHead(status, { Location: '/elsewhere' }).end(),
      };
      expectProblem((await signInWith(relay.port)).ended, 503, 'identity_provider_unavailable');
    }
    expect(provider.asked('/elsewhere')).toBe(0);
  });
});
