import { afterEach, describe, expect, test } from '@jest/globals';
import { hashPassword, QUICK } from '../../src/authenticate/password/password-hash.ts';
import { PASSWORD_HASH } from '../../src/service/settings/settings.ts';
import { startTestConsole, type TestConsole, type TestConsoleOptions } from '../harness/service/console.ts';

const running: TestConsole[] = [];
async function start(options: TestConsoleOptions = {}): Promise<TestConsole> {
  const console = await startTestConsole(options);
  running.push(console);
  return console;
}
afterEach(async () => {
  await Promise.all(running.splice(0).map((console) => console.close()));
});

const tokenOf = ({ signInLink }: TestConsole) => signInLink?.searchParams.get('token') ?? '';
const projectsOf = ({ settings }: TestConsole) => settings.projects().map(({ name }) => name);

describe('the link of the start', () => {
  test('signs in once, by a button; the link itself changes nothing', async () => {
    const console = await start();
    const [first, second] = [console.visitor(), console.visitor()];
    const link = `/sign-in?token=${tokenOf(console)}`;
    expect(console.signInLink?.href).toBe(`${console.url.href}${link.slice(1)}`);
    for (const one of [first, second, first]) {
      const { status, headers, body } = await one.get(link);
      expect([status, headers['set-cookie']]).toEqual([200, undefined]);
      expect(body).toContain('>Sign in</button>');
    }
    const signedIn = await first.post('/sign-in', { token: tokenOf(console) });
    expect(signedIn).toMatchObject({ status: 303, headers: { location: '/' } });
    const [cookie = ''] = signedIn.headers['set-cookie'] ?? [];
    expect(cookie).toMatch(/^bot_relay_console=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict$/);
    expect((await first.get('/')).status).toBe(200);

    expect((await second.get(link)).body).toContain('This link was used already');
    const again = await second.post('/sign-in', { token: tokenOf(console) });
    expect([again.status, again.headers['set-cookie']]).toEqual([403, undefined]);
    expect((await second.get('/')).status).toBe(303);
  });

  test('does not sign in by another token, by none, or by a password that nobody has set', async () => {
    const console = await start();
    for (const fields of [{ token: `${tokenOf(console)}x` }, { token: '' }, { password: '' }, {}]) {
      const answer = await console.visitor().post('/sign-in', fields);
      expect([fields, answer.status, answer.headers['set-cookie']]).toEqual([fields, 403, undefined]);
    }
    await console.administrator();
  });
});

describe('without a session', () => {
  test('a form of very many fields is refused, and not read: that would take seconds', async () => {
    const console = await start();
    const visitor = console.visitor();
    const many = Object.fromEntries(Array.from({ length: 1001 }, (_one, n) => [`f${n}`, '']));
    const { status, headers } = await visitor.post('/sign-in', { token: tokenOf(console), ...many });
    expect([status, headers['set-cookie']]).toEqual([400, undefined]);
  });

  test('every page leads to the sign-in, and no form does anything', async () => {
    const console = await start();
    const visitor = console.visitor();
    for (const path of ['/', '/projects/demo', '/projects/demo/keys', '/projects/demo/models', '/nothing'])
      expect(await visitor.get(path)).toMatchObject({ status: 303, headers: { location: '/sign-in' } });
    for (const path of ['/projects', '/projects/demo/keys', '/projects/demo/delete'])
      expect([path, (await visitor.post(path, { name: 'mine' })).status]).toEqual([path, 401]);
    expect(projectsOf(console)).toEqual(['demo']);
    expect(console.settings.keys('demo')).toEqual([]);
  });

  test('a cookie that was signed by nobody is none; signing out ends the session', async () => {
    const console = await start();
    const forged = { Cookie: `bot_relay_console=${'a'.repeat(32)}.${'b'.repeat(43)}` };
    expect((await console.visitor().get('/', forged)).status).toBe(303);
    const administrator = await console.administrator();
    const signedIn = await administrator.get('/');
    expect(signedIn.status).toBe(200);
    const out = await administrator.submit('/sign-out');
    expect(out.path).toBe('/sign-in');
    expect((await administrator.get('/')).status).toBe(303);
  });
});

describe('pages of other origins', () => {
  test('reach nothing under another host name, as with DNS rebinding', async () => {
    const console = await start();
    const administrator = await console.administrator();
    for (const host of ['evil.example', `evil.example:${console.port}`, '127.0.0.1.evil.example', '10.0.0.1'])
      expect([host, (await administrator.get('/', { Host: host })).status]).toEqual([host, 421]);
    for (const host of ['localhost', `127.0.0.1:${console.port}`, '[::1]:4001'])
      expect([host, (await administrator.get('/', { Host: host })).status]).toEqual([host, 200]);
  });

  test('send no form', async () => {
    const console = await start();
    const administrator = await console.administrator();
    const strange = [
      'https://evil.example',
      'null',
      'http://127.0.0.1:3000',
      `https://127.0.0.1:${console.port}`,
    ];
    for (const Origin of strange)
      for (const more of [{}, { 'Sec-Fetch-Site': 'cross-site' }, { 'Sec-Fetch-Site': 'same-site' }]) {
        const { status } = await administrator.post('/projects', { name: 'theirs' }, { Origin, ...more });
        expect([Origin, more, status]).toEqual([Origin, more, 403]);
      }
    expect(projectsOf(console)).toEqual(['demo']);
    const stolen = await console
      .visitor()
      .post('/sign-in', { token: tokenOf(console) }, { Origin: 'http://evil.example' });
    expect(stolen.status).toBe(403);
  });

  test('neither frame a page, nor keep it, nor run anything in it', async () => {
    const console = await start();
    const administrator = await console.administrator();
    for (const path of ['/', '/projects/demo/models', '/sign-in', '/nothing', '/console.css']) {
      const { headers } = await administrator.get(path);
      expect([path, `${headers['content-security-policy']}`.split(';').sort()]).toEqual([
        path,
        [
          ...["base-uri 'none'", "default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"],
          ...["img-src 'self'", "style-src 'self'"],
        ],
      ]);
      expect(headers).toMatchObject({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
      expect(headers['x-powered-by']).toBeUndefined();
    }
  });
});

describe('on an address that others reach', () => {
  const PASSWORD = 'a long password';
  test('there is no link; the password signs in, and one that is changed does so at once', async () => {
    await expect(start({ host: '0.0.0.0' })).rejects.toThrow('bot-relay service password');
    const passwordHash = await hashPassword('an old password', QUICK);
    const console = await start({ host: '0.0.0.0', passwordHash });
    const visitor = console.visitor();
    expect(console.signInLink).toBeUndefined();
    console.settings.setConsoleValue(PASSWORD_HASH, await hashPassword(PASSWORD, QUICK));
    expect((await visitor.get('/sign-in')).body).toContain('type="password"');
    const wrong = await visitor.fail('/sign-in', { password: 'wrong-password' });
    expect(wrong).toContain('The password is wrong.');
    expect(wrong).not.toContain('wrong-password');
    expect((await visitor.submit('/sign-in', { password: PASSWORD })).status).toBe(200);
  });

  test('a new password ends the sessions that began before it', async () => {
    const console = await start({ host: '0.0.0.0', passwordHash: await hashPassword(PASSWORD, QUICK) });
    const [visitor, other] = [console.visitor(), console.visitor()];
    for (const one of [visitor, other]) await one.submit('/sign-in', { password: PASSWORD });
    const another = await hashPassword('another long password', QUICK);
    console.settings.setConsoleValue(PASSWORD_HASH, another);
    expect((await visitor.get('/')).status).toBe(303);
    await visitor.submit('/sign-in', { password: 'another long password' });
    expect([(await visitor.get('/')).status, (await other.get('/')).status]).toEqual([200, 303]);
  });

  test('five wrong passwords a minute are too many, also for the right one, and also all at once', async () => {
    const console = await start({ host: '0.0.0.0', passwordHash: await hashPassword(PASSWORD, QUICK) });
    const signIn = (password: string) => console.visitor().post('/sign-in', { password });
    // The right one gives its place back.
    for (let n = 0; n < 6; n++) expect((await signIn(PASSWORD)).status).toBe(303);
    const statuses = await Promise.all(Array.from('123456789', async (one) => (await signIn(one)).status));
    expect(statuses.sort()).toEqual([422, 422, 422, 422, 422, 429, 429, 429, 429]);
    const right = await signIn(PASSWORD);
    expect([right.status, right.headers['retry-after']]).toEqual([429, '60']);
  });

  test('behind a proxy with TLS, the name, the origin and the cookie are those of the public address', async () => {
    const console = await start({ publicUrl: new URL('https://console.example/') });
    expect(console.signInLink?.origin).toBe('https://console.example');
    const visitor = console.visitor();
    const signIn = (Origin: string) =>
      visitor.post('/sign-in', { token: tokenOf(console) }, { Host: 'console.example', Origin });
    expect((await signIn('http://console.example')).status).toBe(403);
    const { status, headers } = await signIn('https://console.example');
    expect(status).toBe(303);
    expect(headers['set-cookie']?.[0]).toMatch(
      /^__Host-bot_relay_console=.*; HttpOnly; Secure; SameSite=Strict$/,
    );
    expect(headers['strict-transport-security']).toMatch(/^max-age=\d+$/);
    expect((await visitor.get('/', { Host: 'console.example' })).status).toBe(200);
  });
});
