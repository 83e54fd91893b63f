import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem } from '../harness/clients/call.ts';
import { type Oidc, type OidcOptions, startOidc } from '../harness/relay/oidc-relay.ts';

let oidc: Oidc;
afterEach(() => oidc.close());
const start = async (options?: OidcOptions) => {
  oidc = await startOidc(options);
  return oidc.browser();
};
const to = (path: string) => ({ query: `?returnTo=${path}` });
const stateOf = ({ searchParams }: URL) => searchParams.get('state') as string;

describe('the cookie of a sign-in under way', () => {
  test('is HttpOnly and Lax, and lives ten minutes', async () => {
    const browser = await start();
    const { headers } = await browser.login();
    const [cookie = '', ...others] = headers['set-cookie'] ?? [];
    expect(others).toEqual([]);
    const [pair = '', ...flags] = cookie.split('; ');
    const state = stateOf(new URL(headers.location as string));
    expect(pair.split('=')[0]).toBe(`bot_relay_sign_in_${state}`);
    expect(flags.filter((flag) => !flag.startsWith('Expires=')).sort()).toEqual([
      'HttpOnly',
      'Max-Age=600',
      'Path=/',
      'SameSite=Lax',
    ]);
  });

  test('is Secure and __Host- if the public URL is https', async () => {
    const browser = await start({ environment: { PUBLIC_URL: 'https://chat.example.com' } });
    const { headers } = await browser.login();
    const [pair = '', ...flags] = headers['set-cookie']?.[0]?.split('; ') ?? [];
    expect(pair).toMatch(/^__Host-bot_relay_sign_in_[\w-]{43}=/);
    expect(flags).toEqual(expect.arrayContaining(['Secure', 'HttpOnly', 'SameSite=Lax', 'Path=/']));
    expect(flags.join()).not.toMatch(/domain/i);
    const [name] = browser.flows() as [string];
    const back = await browser.atProvider(new URL(headers.location as string));
    const ended = await browser.comeBack(back);
    expect(ended.headers['set-cookie']?.[0]).toMatch(new RegExp(`^${name}=; .*Secure`));
    expect((await browser.session()).status).toBe(200);
  });

  test('stays small with the longest returnTo, and its content is encrypted', async () => {
    const browser = await start();
    await browser.signIn();
    const long = `/${'canary-path-'.repeat(42)}`.slice(0, 512);
    const { headers } = await browser.login(to(long));
    const [cookie = ''] = headers['set-cookie'] ?? [];
    expect(cookie.length).toBeLessThan(1500);
    const readable = cookie.split('.').map((part) => Buffer.from(part, 'base64url').toString('latin1'));
    expect(cookie + readable.join()).not.toMatch(/canary-path|verifier|nonce/);
    const back = await browser.atProvider(new URL(headers.location as string));
    expect((await browser.comeBack(back)).headers.location).toBe(long);
  });

  test('stays small with a returnTo whose JSON is longer', async () => {
    const browser = await start();
    const { headers } = await browser.login(to(`/${encodeURIComponent('"'.repeat(511))}`));
    expect(headers['set-cookie']?.[0]?.length).toBeLessThan(1500);
  });

  test('is removed after the sign-in, whether it succeeded or failed', async () => {
    const browser = await start();
    const url = await browser.begin();
    const back = new URL(`http://app.example.com/auth/callback?error=access_denied&state=${stateOf(url)}`);
    back.searchParams.set('iss', oidc.provider.issuer);
    expect(browser.flows()).toHaveLength(1);
    expectProblem(await browser.comeBack(back), 400, 'sign_in_failed');
    expect(browser.flows()).toEqual([]);
  });
});

describe('several tabs', () => {
  test('can finish in any order, and each returns to its own path', async () => {
    const browser = await start();
    const [one, two, three] = [
      await browser.begin(to('/one')),
      await browser.begin(to('/two')),
      await browser.begin(to('/three')),
    ];
    const end = async (url: URL) => (await browser.comeBack(await browser.atProvider(url))).headers.location;
    expect(await end(two)).toBe('/two');
    const four = await browser.begin(to('/four'));
    expect([await end(one), await end(four), await end(three)]).toEqual(['/one', '/four', '/three']);
    expect(browser.flows()).toEqual([]);
    expect((await browser.session()).status).toBe(200);
  });

  test('can begin at the same moment', async () => {
    const browser = await start();
    const urls = await Promise.all(['/one', '/two', '/three'].map((path) => browser.begin(to(path))));
    const backs = [];
    for (const url of urls) backs.push(await browser.atProvider(url));
    const ended = await Promise.all(backs.map((back) => browser.comeBack(back)));
    expect(ended.map(({ headers }) => headers.location)).toEqual(['/one', '/two', '/three']);
  });

  test('can be five at a time, and a sixth removes the oldest', async () => {
    const browser = await start();
    const urls: URL[] = [];
    for (let n = 0; n < 7; n += 1) urls.push(await browser.begin(to(`/${n}`)));
    expect(browser.flows()).toEqual(urls.slice(2).map((url) => `bot_relay_sign_in_${stateOf(url)}`));
    const ended = [];
    for (const url of urls) ended.push(await browser.comeBack(await browser.atProvider(url)));
    expect(ended.map(({ status, headers }) => headers.location ?? status)).toEqual([
      400,
      400,
      '/2',
      '/3',
      '/4',
      '/5',
      '/6',
    ]);
  });

  test('that are far too many are removed a few at a time, so that proxies accept the answer’s headers', async () => {
    const browser = await start({ environment: { PUBLIC_URL: 'https://chat.example.com' } });
    const names = Array.from(
      { length: 40 },
      (_, n) => `__Host-bot_relay_sign_in_${String(n).padStart(43, '0')}`,
    );
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

  test('are not mixed up: the code of one with the state of another signs nobody in', async () => {
    const browser = await start();
    const [one, other] = [await browser.begin(), await browser.begin()];
    const mixed = await browser.atProvider(one);
    mixed.searchParams.set('state', stateOf(other));
    expectProblem(await browser.comeBack(mixed), 400, 'sign_in_failed');
    expect((await browser.session()).status).toBe(401);
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ status: 400, outcome: 'sign_in_failed', cause: 'invalid_grant' });
  });
});

describe('a sign-in that began', () => {
  const OLD = 'canary-session-secret-0123456789-abcdef';
  const NEW = 'canary-new-session-secret-abcdef-9876543210';

  test.each([
    ['the same secrets', OLD, OLD, 302],
    ['new secrets and the old ones', OLD, `${NEW},${OLD}`, 302],
    ['other secrets', OLD, NEW, 400],
  ])('at one instance is finished at another with %s (%s, then %s)', async (_, here, there, status) => {
    const browser = await start({ environment: [{ SESSION_SECRETS: here }, { SESSION_SECRETS: there }] });
    const back = await browser.atProvider(await browser.begin(to('/there')));
    browser.relay = oidc.relays[1] as Oidc['relay'];
    const ended = await browser.comeBack(back);
    expect(ended.status).toBe(status);
    if (status === 302) expect(ended.headers.location).toBe('/there');
    else expectProblem(ended, 400, 'sign_in_failed');
    expect((await browser.session()).status).toBe(status === 302 ? 200 : 401);
  });
});
