import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import express from 'express';
import { EncryptJWT } from 'jose';
import { type SignInFlow, signInFlows } from '../../src/authenticate/oidc/sign-in-flows.ts';
import { secret } from '../../src/secret.ts';
import { call, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';
import { Jar } from '../harness/service/identity-provider.ts';

const OURS = secret('canary-session-secret-0123456789-abcdef');
const THEIRS = secret('canary-other-session-secret-fedcba-9876543210');
const MINUTE = 60_000;
const PREFIX = 'bot_relay_sign_in_';

describe('a sign-in under way', () => {
  const flowsOf = (...secrets: (typeof OURS)[]) => signInFlows({ secrets, realm: 'oidc', https: false });
  let flows: ReturnType<typeof flowsOf>;
  let flow: SignInFlow;
  let jar: Jar;
  let port: number;
  let taken: SignInFlow | undefined;
  const server = createServer(
    express()
      .get('/keep', async (req, res) => {
        await flows.keep(req, res, flow);
        res.end();
      })
      .get('/take', async (req, res) => {
        taken = await flows.take(req, res, String(req.query.state ?? flow.state));
        res.end();
      }),
  );
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  });
  beforeEach(async () => {
    jest.useFakeTimers({
      now: Date.now(),
      doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'performance'],
    });
    flows = flowsOf(OURS);
    flow = flows.begin('/chat');
    jar = new Jar();
    await ask('/keep');
  });
  afterEach(() => void jest.useRealTimers());
  afterAll(() => void server.close());

  async function ask(path: string, cookie = jar.header()): Promise<void> {
    const { status, headers } = await call(port, path, { headers: { Cookie: cookie } });
    expect(status).toBe(200);
    jar.takeAll(headers['set-cookie']);
  }
  /** The sign-in that is found with these cookies. */
  async function find(cookie?: string, query = ''): Promise<SignInFlow | undefined> {
    taken = undefined;
    await ask(`/take${query}`, cookie);
    return taken;
  }
  const name = () => PREFIX + flow.state;
  const value = () => jar.value(name()) as string;

  test('is found once with all its values, which are random', async () => {
    expect(await find()).toMatchObject({ ...flow });
    expect(await find()).toBeUndefined();
    const values = [flow, flows.begin('/chat')].flatMap(({ state, nonce, verifier }) => [
      state,
      nonce,
      verifier,
    ]);
    expect(new Set(values).size).toBe(6);
  });

  test.each([
    ['is valid for ten minutes', 10 * MINUTE - 1000, true],
    ['expires then, also if the browser has kept the cookie', 10 * MINUTE + 1000, false],
  ])('%s', async (_, after, isGood) => {
    const cookie = jar.header();
    jest.setSystemTime(Date.now() + after);
    expect((await find(cookie)) !== undefined).toBe(isGood);
  });

  test('is found among many other cookies, and only by its exact name', async () => {
    const pair = `${name()}=${value()}`;
    const noise = Array.from({ length: 50 }, (_, n) => `cookie${n}=${'y'.repeat(50)}`).join('; ');
    expect(await find(`${noise};${pair};${noise}`)).toBeDefined();
    for (const byte of ['\xa0', '\t', '=', '"', 'x', 'x=', '__Host-']) {
      expect([byte, await find(`a=b;${byte}${pair}`)]).toEqual([byte, undefined]);
      expect(await find(`a=b;${byte}${name()}=bad; ${pair}`)).toMatchObject({ ...flow });
    }
    expect(await find(pair.replace('=', ' ='))).toBeUndefined();
  });

  test('is not found by the state, or in the cookie, of another one', async () => {
    for (const state of ['x'.repeat(43), ''])
      expect(await find(undefined, `?state=${state}`)).toBeUndefined();
    expect(jar.names()).toEqual([name()]);
    const own = name();
    flow = flows.begin('/other');
    await ask('/keep');
    const other = value();
    expect(await find(`${own}=${other}`, `?state=${own.slice(PREFIX.length)}`)).toBeUndefined();
  });

  test('is not found if any part of it was changed, or is missing', async () => {
    const parts = value().split('.');
    const changed = [0, 2, 3, 4].map((at) =>
      parts
        .map((one, n) => (n === at ? one.slice(0, 5) + (one[5] === 'A' ? 'B' : 'A') + one.slice(6) : one))
        .join('.'),
    );
    const good = value();
    for (const text of [...changed, 'x', 'a.b.c.d.e', good.slice(0, -3), `${good}.`, `${good}AAAA`])
      expect([text === good, await find(`${name()}=${text}`)]).toEqual([false, undefined]);
    expect(await find(`${name()}=${good}`)).toBeDefined();
  });

  test('is found if one of the secrets has encrypted it, and not otherwise', async () => {
    flows = flowsOf(THEIRS, OURS);
    const cookie = jar.header();
    expect(await find(cookie)).toMatchObject({ returnTo: '/chat' });
    flows = flowsOf(THEIRS);
    expect(await find(cookie)).toBeUndefined();
    flows = flowsOf(OURS);
    const claims = { ...flow, exp: Math.floor(Date.now() / 1000) + 60 };
    const header = { alg: 'dir', enc: 'A256GCM' };
    const base64 = (part: unknown) => Buffer.from(JSON.stringify(part)).toString('base64url');
    for (const text of [
      await new EncryptJWT(claims).setProtectedHeader(header).encrypt(randomBytes(32)),
      `${base64({ alg: 'none' })}.${base64(claims)}.`,
    ])
      expect(await find(`${name()}=${text}`)).toBeUndefined();
  });
});

const to = (path: string) => ({ query: `?returnTo=${path}` });
const stateOf = ({ searchParams }: URL) => searchParams.get('state') as string;

describe('the cookie of a sign-in', () => {
  let http: Oidc;
  let https: Oidc;
  beforeAll(async () => {
    http = await startOidc();
    https = await startOidc({ environment: { PUBLIC_URL: 'https://chat.example.com' } });
  });
  afterAll(async () => {
    await http.close();
    await https.close();
  });

  test.each([false, true])(
    'has its flags, lives ten minutes, and is removed at the end; over https: %s',
    async (isSecure) => {
      const browser = (isSecure ? https : http).browser();
      const { headers } = await browser.login();
      const [pair = '', ...flags] = headers['set-cookie']?.[0]?.split('; ') ?? [];
      const url = new URL(headers.location as string);
      const name = `${isSecure ? '__Host-' : ''}${PREFIX}${stateOf(url)}`;
      expect([headers['set-cookie']?.length, pair.split('=')[0]]).toEqual([1, name]);
      expect(flags.filter((flag) => !flag.startsWith('Expires=')).sort()).toEqual([
        ...['HttpOnly', 'Max-Age=600', 'Path=/', 'SameSite=Lax', ...(isSecure ? ['Secure'] : [])],
      ]);
      const ended = await browser.comeBack(await browser.atProvider(url));
      expect(ended.headers['set-cookie']?.[0]).toMatch(
        new RegExp(`^${name}=; .*${isSecure ? 'Secure' : ''}`),
      );
      expect(isSignedIn(await browser.session())).toBe(true);
    },
  );

  test('is removed after a sign-in that failed', async () => {
    const browser = http.browser();
    const back = new URL('http://app.example.com/auth/callback?error=access_denied');
    back.searchParams.set('state', stateOf(await browser.begin()));
    back.searchParams.set('iss', http.provider.issuer);
    expect(browser.flows()).toHaveLength(1);
    expectProblem(await browser.comeBack(back), 400, 'sign_in_failed');
    expect(browser.flows()).toEqual([]);
  });

  test('stays small with the longest returnTo, and its content is encrypted', async () => {
    const browser = http.browser();
    const long = `/${'canary-path-'.repeat(42)}`.slice(0, 512);
    const { headers } = await browser.login(to(long));
    const [cookie = ''] = headers['set-cookie'] ?? [];
    expect(cookie.length).toBeLessThan(1500);
    const readable = cookie.split('.').map((part) => Buffer.from(part, 'base64url').toString('latin1'));
    expect(cookie + readable.join()).not.toMatch(/canary-path|verifier|nonce/);
    const back = await browser.atProvider(new URL(headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(long);
    // The JSON of this one is longer.
    const other = await browser.login(to(`/${encodeURIComponent('"'.repeat(511))}`));
    expect(other.headers['set-cookie']?.[0]?.length).toBeLessThan(1500);
  });

  test('is one for each tab: they finish in any order, and each returns to its own path', async () => {
    const browser = http.browser();
    const begin = (path: string) => browser.begin(to(path));
    const [one, two, three] = (await Promise.all(['/one', '/two', '/three'].map(begin))) as [URL, URL, URL];
    const end = async (url: URL) => (await browser.comeBack(await browser.atProvider(url))).headers.location;
    expect(await end(two)).toBe('/two');
    const four = await begin('/four');
    expect(await end(one)).toBe('/one');
    const backs = [await browser.atProvider(four), await browser.atProvider(three)];
    const ended = await Promise.all(backs.map((back) => browser.comeBack(back)));
    expect(ended.map(({ headers }) => headers.location)).toEqual(['/four', '/three']);
    expect([browser.flows(), isSignedIn(await browser.session())]).toEqual([[], true]);
  });

  test('is one of five at a time: a sixth removes the oldest', async () => {
    const browser = http.browser();
    const urls: URL[] = [];
    for (let n = 0; n < 7; n += 1) urls.push(await browser.begin(to(`/${n}`)));
    expect(browser.flows()).toEqual(urls.slice(2).map((url) => PREFIX + stateOf(url)));
    const ended = [];
    for (const url of urls) ended.push(await browser.comeBack(await browser.atProvider(url)));
    const seen = ended.map(({ status, headers }) => headers.location ?? status);
    expect(seen).toEqual([400, 400, '/2', '/3', '/4', '/5', '/6']);
  });

  test('is removed a few at a time where there are far too many, so that proxies accept the headers', async () => {
    const browser = https.browser();
    const names = Array.from({ length: 40 }, (_, n) => `__Host-${PREFIX}${String(n).padStart(43, '0')}`);
    for (const name of names) browser.jar.set(name, 'begun-in-another-tab');
    const { headers } = await browser.login();
    const dropped = (headers['set-cookie'] ?? []).filter((line) => line.includes('=; '));
    expect(dropped.map((line) => line.split('=')[0])).toEqual(names.slice(0, 5));
    expect((headers['set-cookie'] ?? []).join().length).toBeLessThan(2000);
    while (browser.flows().length > 5) {
      const before = browser.flows().length;
      await browser.login();
      expect(browser.flows().length).toBeLessThan(before);
    }
  });

  test('is not mixed up: the code of one with the state of another signs nobody in', async () => {
    const browser = http.browser();
    const [one, other] = [await browser.begin(), await browser.begin()];
    const mixed = await browser.atProvider(one);
    mixed.searchParams.set('state', stateOf(other));
    const answer = await browser.comeBack(mixed);
    expectProblem(answer, 400, 'sign_in_failed');
    expect(isSignedIn(await browser.session())).toBe(false);
    const line = await http.relay.logLine(({ requestId }) => requestId === answer.headers['x-request-id']);
    expect(line).toMatchObject({ status: 400, outcome: 'sign_in_failed', cause: 'invalid_grant' });
  });
});
