import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { NAVIGATION, startOidc } from '../harness/relay/oidc-relay.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import {
  type FakeProvider,
  type Handler,
  PATHS,
  signInAt,
  signInWith,
  startFakeProvider,
} from '../harness/service/fake-provider.ts';

/** A provider that is asked at each of its paths during a sign-in. */
async function startProvider(): Promise<FakeProvider> {
  const provider = await startFakeProvider();
  provider.metadata.userinfo_endpoint = provider.issuer + PATHS.userinfo;
  provider.claims = { name: undefined };
  return provider;
}
const startAt = ({ issuer }: FakeProvider) => startRelay('http://127.0.0.1:9', signInAt(issuer));

let provider: FakeProvider;
let relay: TestRelay;
beforeEach(async () => {
  provider = await startProvider();
  relay = await startAt(provider);
});
afterEach(async () => {
  await relay.close();
  await provider.close();
});

/** Expects a refusal that tells nothing of the provider; returns the cause in the log. */
async function expectUnavailable(answer: Answer, at = relay): Promise<unknown> {
  const { detail, requestId } = expectProblem(answer, 503, 'identity_provider_unavailable');
  expect(detail).toBe('The identity provider does not answer as it should. Try again.');
  expect(answer.headers['retry-after']).toBe('5');
  expect(String(answer.headers['set-cookie'])).not.toContain('bot_relay_session=s');
  expect(answer.body).not.toMatch(/127\.0\.0\.1|canary/);
  return (await at.logLine((line) => line.msg === 'request' && line.requestId === requestId)).cause;
}
const signIn = async () => (await signInWith(relay.port)).ended;
const json =
  (status: number, body: string, headers: Record<string, string> = {}): Handler =>
  (_req, res) =>
    void res.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(body);
const HTML = { 'Content-Type': 'text/html' };
const reset: Handler = (req) => void req.socket.resetAndDestroy();

describe('a provider that answers at one of its paths with', () => {
  test.each<[string, Handler]>([
    ['a page', json(200, '<html>canary-page</html>', HTML)],
    ['a page of an error', json(500, '<html>canary-page</html>', HTML)],
    ['an error', json(503, '{"canary":"page"}')],
    ['a redirect', json(302, '', { Location: '/elsewhere' })],
    ['nothing', json(200, '')],
    ['broken JSON', json(200, '{"issuer":"canary-page')],
    ['a list', json(200, '["canary-page"]')],
    ['null', json(200, 'null')],
    ['a reset', reset],
  ])('%s counts as out of reach, and works afterwards', async (_, handler) => {
    for (const path of [PATHS.metadata, PATHS.token, PATHS.userinfo]) {
      provider.answers = { [path]: handler };
      await expectUnavailable(await signIn());
    }
    provider.answers = {};
    expect((await signIn()).status).toBe(302);
    // The keys are kept: another instance has none yet.
    const other = await startAt(provider);
    provider.answers = { [PATHS.keys]: handler };
    await expectUnavailable((await signInWith(other.port)).ended, other);
    provider.answers = {};
    expect((await signInWith(other.port)).ended.status).toBe(302);
    await other.close();
    expect(provider.asked('/elsewhere')).toBe(0);
    expect(JSON.stringify([relay.logs, other.logs])).not.toContain('canary-page');
  });

  test('what looks like a secret, which is not logged', async () => {
    const words = { code: 'canary-leaked code', name: 'canary leaked', message: 'canary-leaked' };
    for (const answer of [
      json(200, JSON.stringify(words)),
      json(400, JSON.stringify({ error: 'canary-leaked code', ...words })),
    ]) {
      provider.answers = { [PATHS.token]: answer };
      expect((await signIn()).status).not.toBe(302);
    }
    expect(JSON.stringify(relay.logs)).not.toMatch(/canary.leaked/);
  });

  test.each([PATHS.metadata, PATHS.keys, PATHS.token])(
    'an answer that never ends at %s is read up to a limit',
    async (path) => {
      let answer: ServerResponse | undefined;
      provider.answers = {
        [path]: (_req, res) => {
          answer = res.writeHead(200, { 'Content-Type': 'application/json' });
          const push = () => {
            while (!res.destroyed && res.write(' '.repeat(65_536)));
          };
          res.on('drain', push);
          push();
        },
      };
      expect(await expectUnavailable(await signIn())).toBe('ANSWER_TOO_LARGE');
      await until(() => answer?.closed === true);
      provider.answers = {};
      expect((await signIn()).status).toBe(302);
    },
  );
});

describe('while the provider is out of reach', () => {
  test('a sign-in neither begins nor ends, its cause is logged, and the sessions that there are go on', async () => {
    const { cookie, ended } = await signInWith(relay.port);
    expect(ended.status).toBe(302);
    const fresh = await startAt(provider);
    await provider.close();
    const begun = await call(fresh.port, '/auth/login');
    expect(await expectUnavailable(begun, fresh)).toBe('ECONNREFUSED');
    expect(begun.headers).not.toHaveProperty('set-cookie');
    const line = await fresh.logLine(({ msg }) => msg === 'identity provider not discovered');
    expect(line).toMatchObject({ level: 'error', cause: 'ECONNREFUSED' });
    await fresh.close();
    // A relay that has the metadata lets one begin.
    const { begun: known, ended: failed } = await signInWith(relay.port);
    expect(known.status).toBe(302);
    expect(await expectUnavailable(failed)).toBe('ECONNREFUSED');
    const session = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect(isSignedIn(session)).toBe(true);
    provider = await startProvider();
  });
});

describe('a relay with the wrong client secret', () => {
  test('answers 503, also with a page, and logs the cause', async () => {
    const secret = 'canary-wrong-client-secret';
    const oidc = await startOidc({ environment: { OIDC_CLIENT_SECRET: secret } });
    const browser = oidc.browser();
    expect(await expectUnavailable(await browser.signIn(), oidc.relay)).toBe('invalid_client');
    expect(isSignedIn(await browser.session())).toBe(false);
    const page = await browser.comeBack(await browser.atProvider(await browser.begin()), NAVIGATION);
    expect(page).toMatchObject({
      status: 503,
      headers: { 'content-type': 'text/html; charset=utf-8', 'retry-after': '5' },
    });
    const id = page.headers['x-request-id'];
    expect(await oidc.relay.logLine(({ requestId }) => requestId === id)).toMatchObject({
      ...{ level: 'warn', status: 503, outcome: 'identity_provider_unavailable', cause: 'invalid_client' },
    });
    expect(JSON.stringify(oidc.relay.logs)).not.toContain(secret);
    await oidc.close();
  });
});

const never: Handler = () => {};
const slowly: Handler = (_req, res) =>
  void res.writeHead(200, { 'Content-Type': 'application/json' }).write('{');
const HANGING: [how: string, path: string, hang: Handler, cause: string][] = [
  ['whose metadata never comes', PATHS.metadata, never, 'OAUTH_TIMEOUT'],
  ['whose tokens never come', PATHS.token, never, 'OAUTH_TIMEOUT'],
  ['whose tokens come very slowly', PATHS.token, slowly, 'OAUTH_PARSE_ERROR'],
  ['whose keys never come', PATHS.keys, never, 'ERR_JWKS_TIMEOUT'],
  ['whose user data never come', PATHS.userinfo, never, 'OAUTH_TIMEOUT'],
];

// These begin when the file begins, and wait while the other tests run.
testSideBySide(
  HANGING.map(([how, path, hang, cause]) => [
    `a provider ${how} is not waited for without end`,
    async () => {
      const slow = await startProvider();
      const own = await startAt(slow);
      try {
        slow.answers = { [path]: hang };
        const { ended, cookie } = await signInWith(own.port);
        expect(await expectUnavailable(ended, own)).toBe(cause);
        const session = await call(own.port, '/auth/session', { headers: { Cookie: cookie } });
        expectNobody(session);
      } finally {
        await own.close();
        await slow.close();
      }
    },
  ]),
);
