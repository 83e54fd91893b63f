import { afterEach, describe, expect, test } from '@jest/globals';
import { type Claims, userOf } from '../../src/authenticate/oidc/claims.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { type Oidc, startOidc } from '../harness/relay/oidc-relay.ts';

const user = (claims: Record<string, unknown>) => userOf({ sub: 'ada', ...claims } as Claims);

describe('the id of a user', () => {
  test.each(['ada', 'a', '00u1|x@example.com', 'Ada Lovelace', '!~', 'x'.repeat(255)])(
    'is the subject: %s',
    (sub) => {
      expect(user({ sub })).toEqual({ id: sub, name: sub.slice(0, 200) });
    },
  );

  test.each([
    ['nothing', ''],
    ['a space', ' '],
    ['a space before it', ' ada'],
    ['a space after it', 'ada '],
    ['a line end', 'ada\n'],
    ['a header', 'ada\r\nX-API-KEY: canary'],
    ['a NUL', 'a\0da'],
    ['a tab', 'a\tda'],
    ['a DEL', 'a\x7fda'],
    ['a letter that is not ASCII', 'adä'],
    ['half a surrogate pair', 'a\ud800'],
    ['more than 255 characters', 'x'.repeat(256)],
    ['a million characters', 'x'.repeat(1_000_000)],
    ['a number', 7],
    ['a list', ['ada']],
    ['null', null],
  ])('is never %s', (_, sub) => {
    expect(() => user({ sub })).toThrow(
      expect.objectContaining({
        code: 'sign_in_failed',
        status: 400,
        cause: 'bad_subject',
        options: expect.objectContaining({ level: 'warn' }),
      }),
    );
  });
});

describe('the name of a user', () => {
  test.each([
    ['the name', { name: 'Ada', preferred_username: 'al', email: 'a@example.com' }, 'Ada'],
    ['else the user name', { preferred_username: 'al', email: 'a@example.com' }, 'al'],
    ['else the address', { email: 'a@example.com' }, 'a@example.com'],
    ['else the subject', {}, 'ada'],
    ['not an empty one', { name: '', preferred_username: ' \t', email: 'a@example.com' }, 'a@example.com'],
    ['not a number', { name: 7 }, 'ada'],
    ['not a list', { name: ['Ada'] }, 'ada'],
    ['not an object', { name: { toString: 'Ada' } }, 'ada'],
    ['not null', { name: null, preferred_username: false }, 'ada'],
    ['without spaces at its ends', { name: '  Ada  L. ' }, 'Ada  L.'],
    ['of any script', { name: 'Аda 愛 👩‍💻' }, 'Аda 愛 👩‍💻'],
  ])('is %s', (_, claims, name) => {
    expect(user(claims)).toEqual({ id: 'ada', name });
  });

  test('is cut to 200 UTF-16 units, and never within a character', () => {
    expect(user({ name: 'n'.repeat(1_000_000) }).name).toBe('n'.repeat(200));
    const cut = user({ name: `n${'😀'.repeat(200)}` }).name;
    expect(cut).toBe(`n${'😀'.repeat(99)}`);
    expect(user({ name: 'a\ud800b\udc00' }).name).toBe('a\ufffdb\ufffd');
  });
});

describe('at a sign-in', () => {
  let oidc: Oidc;
  afterEach(() => oidc.close());

  test.each([
    ['control characters', 'ada\x01'],
    ['300 characters', 'x'.repeat(300)],
    ['a space at its end', 'ada '],
  ])('a subject with %s signs nobody in', async (_, sub) => {
    oidc = await startOidc();
    const browser = oidc.browser();
    expectProblem(await browser.signIn(sub), 400, 'sign_in_failed');
    expect((await browser.session()).status).toBe(401);
    const line = await oidc.relay.logLine(({ route }) => route === '/auth/callback');
    expect(line).toMatchObject({ cause: 'bad_subject' });
    expect(line).not.toHaveProperty('userId');
  });

  test('the subject replaces a name that is not text, and a very long name is cut', async () => {
    const names: Record<string, unknown> = { ada: { first: 'Ada' }, bob: 'b'.repeat(100_000) };
    oidc = await startOidc({
      provider: {
        findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id, name: names[id] }) }),
      },
    });
    for (const [sub, name] of [
      ['ada', 'ada'],
      ['bob', 'b'.repeat(200)],
    ] as const) {
      const browser = oidc.browser();
      expect((await browser.signIn(sub)).status).toBe(302);
      expect(JSON.parse((await browser.session()).body).user).toEqual({ id: sub, name });
    }
  });
});
