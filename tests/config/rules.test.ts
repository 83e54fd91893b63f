import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Config, loadConfig } from '../../src/config/config.ts';
import { MODEL_KEYS } from '../../src/config/service-model.ts';
import { VARIABLES } from '../../src/config/variables.ts';
import { PRODUCTION, problemsOf, SECRET_A, SECRET_B } from '../harness/relay/environments.ts';

/** The variables required with AUTH_MODE=oidc. */
const OIDC = {
  AUTH_MODE: 'oidc',
  OIDC_ISSUER: 'https://id.example.com/realms/staff',
  OIDC_CLIENT_ID: 'bot-relay',
  OIDC_CLIENT_SECRET: 'canary-client-secret',
} as const;

/** The problem of a variable that production requires. */
const missingInProduction = (name: string) =>
  `${name} must be set in production${name === 'CHANNEL_SECRET' ? ', unless CHANNELS is shared' : ''}`;

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-config-'));
afterAll(() => rmSync(folder, { recursive: true }));
function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}
const opened = (secrets: Config['session']['secrets']) => secrets.map((secret) => secret.open());

describe('variables that do not fit together', () => {
  const REQUIRED = 'OIDC_REQUIRED_CLAIM is set, but AUTH_MODE is not oidc: it would keep nobody out';
  test.each<[Record<string, string>, unknown[]]>([
    [{ CHANNEL_SECRET: SECRET_A, SESSION_SECRETS: SECRET_B }, []],
    [{ METRICS_PORT: '3000' }, ['METRICS_PORT must not be PORT: metrics are not for the public']],
    [
      { CORS_HEADERS: 'X-Host' },
      ['CORS_HEADERS is set, but ALLOWED_ORIGINS is not: no page of another origin may send anything'],
    ],
    [{ COOKIE_SAME_SITE: 'none' }, ['COOKIE_SAME_SITE=none needs an https PUBLIC_URL']],
    [
      { COOKIE_SAME_SITE: 'none', PUBLIC_URL: 'http://chat.example.com' },
      ['COOKIE_SAME_SITE=none needs an https PUBLIC_URL'],
    ],
    [
      { REDIS_URL: 'redis://redis' },
      [
        'SESSION_SECRETS must be set with REDIS_URL',
        'CHANNEL_SECRET must be set with REDIS_URL, unless CHANNELS is shared',
      ],
    ],
    [
      { UPSTREAM_BASE_URL: 'http://localhost:1' },
      ['UPSTREAM_API_KEYS must be set with UPSTREAM_BASE_URL', 'BOTS must be set with UPSTREAM_BASE_URL'],
    ],
    [{ SERVICE_DATA: 'service.db' }, ['SERVICE_SECRET must be set with SERVICE_DATA']],
    [{ SERVICE_DATA: 'service.db', SERVICE_SECRET: SECRET_A }, []],
    [{ SERVICE_MODEL: 'openai/canary' }, ['OPENAI_API_KEY must be set with SERVICE_MODEL=openai/…']],
    [
      { SERVICE_MODEL: 'azure/canary' },
      [
        'AZURE_API_KEY must be set with SERVICE_MODEL=azure/…',
        'SERVICE_ENDPOINT must be set with SERVICE_MODEL=azure/…',
      ],
    ],
    [{ SERVICE_MODEL: 'openai-compatible/a/b:c', SERVICE_ENDPOINT: 'http://127.0.0.1:11434/v1' }, []],
    [
      { SERVICE_MODEL: 'openai-compatible/x' },
      ['SERVICE_ENDPOINT must be set with SERVICE_MODEL=openai-compatible/…'],
    ],
    ...['gpt-5', 'openai/', 'openai', 'voyage/canary', 'openai/a b', 'constructor/canary'].map(
      (SERVICE_MODEL): [Record<string, string>, unknown[]] => [
        { SERVICE_MODEL, OPENAI_API_KEY: 'canary key' },
        [expect.stringMatching(/^SERVICE_MODEL must be KIND\/MODEL, where KIND is openai, azure, /)],
      ],
    ),
    [
      { SERVICE_ENDPOINT: 'http://127.0.0.1:11434/v1' },
      ['SERVICE_ENDPOINT is set, but SERVICE_MODEL is not: no model would be asked there'],
    ],
    ...['ftp://canary', 'http://canary@host/', 'http://host/v1?canary', 'http://host/v1?', 'canary'].map(
      (SERVICE_ENDPOINT): [Record<string, string>, unknown[]] => [
        { SERVICE_MODEL: 'openai-compatible/x', SERVICE_ENDPOINT },
        ['SERVICE_ENDPOINT must be an http or https URL without user, query or fragment'],
      ],
    ),
    ...['169.254.169.254', '2852039166', '[::ffff:169.254.1.1]', '[fe80::1]', '0.0.0.0'].map(
      (host): [Record<string, string>, unknown[]] => [
        { SERVICE_MODEL: 'openai-compatible/x', SERVICE_ENDPOINT: `http://${host}/v1` },
        ['SERVICE_ENDPOINT must not be a link-local address or that of a metadata service'],
      ],
    ),
    [
      { SERVICE_MODEL: 'openai/x', OPENAI_API_KEY: 'key', BOTS: 'demo/echo' },
      ['SERVICE_MODEL is set, but BOTS does not allow demo/assistant, which answers with it'],
    ],
    [{ SERVICE_MODEL: 'openai/x', OPENAI_API_KEY: 'key', BOTS: 'demo/echo,demo/*' }, []],
    [
      { SERVICE_PORT: '4001', SERVICE_CONSOLE_PORT: '4001' },
      ['SERVICE_CONSOLE_PORT must not be SERVICE_PORT: the console is not for those who call bots'],
    ],
    // They are exported for other programs, and not read.
    [{ OPENAI_API_KEY: 'canary key', ANTHROPIC_API_KEY_FILE: '/canary', AZURE_API_KEYS: 'canary' }, []],
    [{ SERVICE_MODEL: 'openai/x', OPENAI_API_KEY: 'key', MISTRAL_API_KEY: 'canary key' }, []],
    [{ UPSTREAM_API_KEYS: 'canary' }, ['UPSTREAM_BASE_URL must be set with UPSTREAM_API_KEYS']],
    [{ UPSTREAM_BASE_URL: 'http://localhost:1', UPSTREAM_API_KEYS: 'key', BOTS: 'acme/helper' }, []],
    [
      { ...OIDC, PORT: '0' },
      ['PUBLIC_URL must be set with AUTH_MODE=oidc and PORT=0: the provider sends browsers there'],
    ],
    [{ ...OIDC, PORT: '0', PUBLIC_URL: 'https://chat.example.com' }, []],
    [{ PORT: '0', AUTH_MODE: 'guest' }, []],
    [{ OIDC_REQUIRED_CLAIM: 'groups:canary-users' }, [REQUIRED]],
    [{ RATE_LIMIT: 'five' }, ['RATE_LIMIT must be a whole number from 1 to 1000000']],
    [{ PORT_FILE: 'x' }, ['PORT_FILE is not a variable of the relay: PORT cannot be given as a file']],
    [
      {
        ...{ PORT: 'canary', BOTS: 'canary,canary2,canary3', LOG_LEVEL: 'canary' },
        UPSTREAM_API_KEYS: 'canary key,another canary',
        ...{ BOTS_FILE: 'canary.json', COOKIE_SAME_SITE: 'none' },
      },
      [
        ...['PORT must be', 'LOG_LEVEL must be', 'UPSTREAM_API_KEYS holds', 'BOTS must be'].map((begin) =>
          expect.stringMatching(`^${begin}`),
        ),
        'BOTS_FILE names a file that cannot be read (ENOENT)',
        'UPSTREAM_BASE_URL must be set with UPSTREAM_API_KEYS',
        'COOKIE_SAME_SITE=none needs an https PUBLIC_URL',
      ],
    ],
  ])('%j have these problems, all at once and each of them once', (environment, problems) => {
    expect(problemsOf(environment)).toEqual(problems);
  });

  test('are CHANNEL_SECRET and one of SESSION_SECRETS', () => {
    const problem =
      'CHANNEL_SECRET must not be one of SESSION_SECRETS: those are replaced from time to time, and it never is';
    for (const SESSION_SECRETS of [SECRET_A, `${SECRET_B},${SECRET_A}`])
      expect(problemsOf({ SESSION_SECRETS, CHANNEL_SECRET: SECRET_A })).toEqual([problem]);
  });

  test.each([
    ['OIDC_REQUIRED_CLAIM', 'groups:canary-users', REQUIRED],
    ['OIDC_REQUIRED_CLAIM', 'canary', REQUIRED],
    [
      'OIDC_ISSUER',
      'https://canary.example.com',
      'OIDC_ISSUER is set, but AUTH_MODE is not oidc: nobody would be sent there to sign in',
    ],
  ])('are %s=%s and another AUTH_MODE than oidc', (name, value, problem) => {
    for (const mode of [{}, { AUTH_MODE: 'password' }, { AUTH_MODE: 'guest' }]) {
      for (const others of [{}, PRODUCTION]) {
        const problems = problemsOf({ ...others, ...mode, [name]: value });
        expect(problems).toContain(problem);
        expect(problems.join()).not.toMatch(/canary/i);
      }
    }
    expect(problemsOf({ ...PRODUCTION, ...OIDC, [name]: value })).not.toContain(problem);
    // The mode is wrong, which has its own problem.
    expect(problemsOf({ ...PRODUCTION, AUTH_MODE: 'odic', [name]: value })).not.toContain(problem);
  });
});

describe('in production', () => {
  const required = Object.keys(PRODUCTION).filter((name) => name !== 'NODE_ENV');

  test.each(required)('%s is required, which is one problem', (name) => {
    expect(problemsOf(PRODUCTION)).toEqual([]);
    expect(problemsOf({ ...PRODUCTION, [name]: undefined })).toEqual([missingInProduction(name)]);
    // A variable with an invalid value has only one problem.
    expect(problemsOf({ ...PRODUCTION, [name]: 'canary wrong' })).toHaveLength(1);
  });

  test('all that is missing is reported, so production never becomes the demo', () => {
    expect(problemsOf({ NODE_ENV: 'production' })).toEqual(required.map(missingInProduction));
  });

  test('CHANNEL_SECRET is not required with CHANNELS=shared', () => {
    const { CHANNEL_SECRET: _left, ...others } = PRODUCTION;
    const shared = { ...others, CHANNELS: 'shared', REDIS_URL: 'redis://redis' };
    expect(problemsOf(shared)).toEqual([]);
    expect(problemsOf({ ...shared, CHANNELS: 'scoped' })).toEqual([missingInProduction('CHANNEL_SECRET')]);
    // The mode is wrong, which has its own problem.
    expect(problemsOf({ ...shared, CHANNELS: 'canary' })).toEqual(['CHANNELS must be scoped or shared']);
  });
});

describe('AUTH_MODE=oidc', () => {
  test.each([[{}], [PRODUCTION]])('needs only these variables, also in the demo: %j', (others) => {
    const { demo, authMode, oidc } = loadConfig({ ...others, ...OIDC });
    expect({ demo, authMode }).toEqual({ demo: !('BOTS' in others), authMode: 'oidc' });
    expect([oidc.issuer.href, oidc.clientSecret.open()]).toEqual([OIDC.OIDC_ISSUER, OIDC.OIDC_CLIENT_SECRET]);
    const rest = {
      clientId: 'bot-relay',
      scopes: 'openid profile',
      keepIdToken: false,
      requiredClaim: undefined,
    };
    expect(oidc).toMatchObject(rest);
  });

  test.each(['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'])(
    'needs %s, which is one problem',
    (name) => {
      const problem = `${name} must be set with AUTH_MODE=oidc`;
      expect(problemsOf({ ...OIDC, [name]: undefined })).toEqual([problem]);
      expect(problemsOf({ ...PRODUCTION, ...OIDC, [name]: '' })).toEqual([problem]);
      const wrong = expect.stringMatching(new RegExp(`^${name} (?!must be set)`));
      expect(problemsOf({ ...OIDC, [name]: 'canary wrong' })).toEqual([wrong]);
    },
  );

  test('reports all problems at once, and no value', () => {
    const problems = problemsOf({
      ...{ NODE_ENV: 'production', AUTH_MODE: 'oidc', OIDC_ISSUER: 'http://canary.example.com' },
      ...{ OIDC_CLIENT_ID: 'canary id', OIDC_CLIENT_SECRET: 'canary secret', OIDC_SCOPES: 'canary' },
      ...{ OIDC_REQUIRED_CLAIM: 'canary', OIDC_KEEP_ID_TOKEN: 'canary' },
    });
    expect(problems.map((problem) => problem.split(' ', 1)[0])).toEqual([
      ...['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'],
      ...['OIDC_SCOPES', 'OIDC_REQUIRED_CLAIM', 'OIDC_KEEP_ID_TOKEN'],
      ...['PUBLIC_URL', 'UPSTREAM_BASE_URL', 'UPSTREAM_API_KEYS', 'BOTS', 'SESSION_SECRETS'],
      'CHANNEL_SECRET',
    ]);
    expect(problems.join()).not.toMatch(/canary/i);
  });

  test.each([
    ['groups:chat-users', 'groups', 'chat-users'],
    ['https://example.com/claims/role:editor', 'https://example.com/claims/role', 'editor'],
    ['urn:example:groups:42', 'urn:example:groups', '42'],
    ['groups:chat users', 'groups', 'chat users'],
  ])('splits OIDC_REQUIRED_CLAIM=%s at the last colon', (text, name, value) => {
    expect(loadConfig({ ...OIDC, OIDC_REQUIRED_CLAIM: text }).oidc.requiredClaim).toEqual({ name, value });
  });

  test.each([
    ...['http://localhost:8080/realms/staff', 'http://127.0.0.1:8080/', 'http://[::1]:8080/'],
    'https://login.example.com/tenant/',
  ])('accepts an issuer by https, or on this machine: %s', (OIDC_ISSUER) => {
    expect(loadConfig({ ...OIDC, OIDC_ISSUER }).oidc.issuer.href).toBe(OIDC_ISSUER);
  });

  test('uses OIDC_KEEP_ID_TOKEN, OIDC_SCOPES and a secret in a file', () => {
    const { oidc } = loadConfig({
      ...{ ...OIDC, OIDC_KEEP_ID_TOKEN: 'true', OIDC_SCOPES: 'groups openid', OIDC_CLIENT_SECRET: '' },
      OIDC_CLIENT_SECRET_FILE: file('client-secret', 'canary-from-file\n'),
    });
    expect(oidc).toMatchObject({ keepIdToken: true, scopes: 'groups openid' });
    expect(oidc.clientSecret.open()).toBe('canary-from-file');
    expect(JSON.stringify(oidc)).not.toMatch(/canary/);
  });
});

describe('secrets', () => {
  test('are separated by commas or new lines and keep their order', () => {
    const UPSTREAM_API_KEYS = ' key-c,key-a\n\nkey-b ,\r\n';
    const SESSION_SECRETS = `${SECRET_B}\n${SECRET_A}`;
    const CHANNEL_SECRET = `${SECRET_A}${SECRET_B}`;
    const config = loadConfig({ ...PRODUCTION, UPSTREAM_API_KEYS, SESSION_SECRETS, CHANNEL_SECRET });
    expect(opened(config.upstream.apiKeys)).toEqual(['key-c', 'key-a', 'key-b']);
    expect(opened(config.session.secrets)).toEqual([SECRET_B, SECRET_A]);
  });

  test.each([
    ['abcdefgh-0123456789-ABCDEFGH-01', /fewer than 32/],
    ['abababababababababababababababababab', /easily guessed/],
    ['1234567'.repeat(6), /easily guessed/],
    ...[
      'change-me',
      'ChangeMe',
      'EXAMPLE',
      'sample',
      'replace',
      'your secret',
      'your-secret',
      'placeholder',
    ].map((word) => [word.padEnd(40, '0123456789abcdef'), /easily guessed/] as const),
  ])('of sessions are not %s', (value, expected) => {
    const problems = problemsOf({ SESSION_SECRETS: `${SECRET_A},${value}` });
    expect(problems).toEqual([expect.stringMatching(expected)]);
    expect(problems[0]).not.toContain(value);
  });

  test('of sessions have at least 32 characters, and 8 different ones', () => {
    for (const SESSION_SECRETS of ['abcdefgh-0123456789-ABCDEFGH-012', '12345678'.repeat(6)])
      expect(problemsOf({ SESSION_SECRETS })).toEqual([]);
  });

  test('can come from a file, whose line end is not part of them, and are checked in the same way', () => {
    const config = loadConfig({
      ...{ ...PRODUCTION, UPSTREAM_API_KEYS: '', SESSION_SECRETS: undefined, CHANNEL_SECRET: undefined },
      UPSTREAM_API_KEYS_FILE: file('keys', 'key-1\nkey-2\r\n'),
      SESSION_SECRETS_FILE: file('secret', `${SECRET_A}\n`),
      CHANNEL_SECRET_FILE: file('channel', `${SECRET_B},${SECRET_A}\r\n`),
    });
    expect(opened(config.upstream.apiKeys)).toEqual(['key-1', 'key-2']);
    expect(opened(config.session.secrets)).toEqual([SECRET_A]);
    // It is one secret, also with a comma in it.
    expect(config.channels.secret.open()).toBe(`${SECRET_B},${SECRET_A}`);
    // A new line is no separator in this variable.
    expect(problemsOf({ OIDC_CLIENT_SECRET_FILE: file('client', 'canary-client\n') })).toEqual([]);
    const bad = { SESSION_SECRETS: '', SESSION_SECRETS_FILE: file('bad', 'canary-Aa0123') };
    const problem = expect.stringMatching(/^SESSION_SECRETS holds a secret of fewer than 32/);
    expect(problemsOf({ ...PRODUCTION, ...bad })).toEqual([problem]);
  });

  test.each(['UPSTREAM_API_KEYS', 'SESSION_SECRETS', 'CHANNEL_SECRET', 'OIDC_CLIENT_SECRET'])(
    '%s and %s_FILE cannot be set both, nor name a file that is missing or empty',
    (name) => {
      const withFile = (path: string, value?: string) =>
        problemsOf({ ...PRODUCTION, [name]: value, [`${name}_FILE`]: path });
      const both = `${name} and ${name}_FILE are both set; set one of them`;
      expect(withFile(file('full', SECRET_A), SECRET_B)).toEqual([both]);
      const unreadable = (code: string) => [`${name}_FILE names a file that cannot be read (${code})`];
      expect(withFile(join(folder, 'canary-missing'))).toEqual(unreadable('ENOENT'));
      expect(withFile(folder)).toEqual(unreadable('EISDIR'));
      expect(withFile(file('empty', ' \n'))).toEqual([`${name}_FILE names an empty file`]);
    },
  );

  test('are the only variables with a _FILE', () => {
    const secrets = Object.entries(VARIABLES).filter(([, { secret }]) => secret);
    expect(secrets.map(([name]) => name)).toEqual([
      ...['UPSTREAM_API_KEYS', 'CHANNEL_SECRET', 'SESSION_SECRETS', 'REDIS_URL', 'REDIS_SENTINEL_PASSWORD'],
      ...['REDIS_TLS_CA', 'REDIS_TLS_CERT', 'REDIS_TLS_KEY', 'OIDC_CLIENT_SECRET'],
      'SERVICE_SECRET',
      ...Object.values(MODEL_KEYS),
    ]);
  });

  test('do not show when the configuration is printed', () => {
    expect(JSON.stringify(loadConfig(PRODUCTION))).not.toMatch(/canary/i);
  });
});
