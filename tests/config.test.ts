import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { type Config, ConfigError, loadConfig } from '../src/config/config.ts';
import type { Environment } from '../src/config/environment.ts';
import { VARIABLES } from '../src/config/variables.ts';

const SECRET_A = 'Canary-0123456789-abcdefghij-ABCDEF';
const SECRET_B = 'Canary-zyxwvutsrq-9876543210-FEDCBA';

/** The variables required with AUTH_MODE=oidc. */
const OIDC = {
  AUTH_MODE: 'oidc',
  OIDC_ISSUER: 'https://id.example.com/realms/staff',
  OIDC_CLIENT_ID: 'bot-relay',
  OIDC_CLIENT_SECRET: 'canary-client-secret',
} as const;

/** The variables required in production. */
const PRODUCTION = {
  NODE_ENV: 'production',
  PUBLIC_URL: 'https://chat.example.com',
  UPSTREAM_BASE_URL: 'https://bots.example.com/v1',
  UPSTREAM_API_KEYS: 'canary-key-1',
  BOTS: 'acme/helper',
  SESSION_SECRETS: SECRET_A,
  CHANNEL_SECRET: SECRET_B,
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

/** The problems of an environment; none if it is valid. */
function problemsOf(environment: Environment): readonly string[] {
  try {
    loadConfig(environment);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    for (const problem of error.problems) expect(error.message).toContain(`  - ${problem}`);
    expect(error.message).toContain(` ${error.problems.length} problem`);
    return error.problems;
  }
}

const opened = (secrets: Config['session']['secrets']) => secrets.map((secret) => secret.open());

const WHOLE_NUMBERS: [name: string, min: number, max: number][] = [
  ['PORT', 0, 65535],
  ['SHUTDOWN_DELAY_MS', 0, 2147483647],
  ['SHUTDOWN_GRACE_MS', 0, 2147483647],
  ['UPSTREAM_RESPONSE_TIMEOUT_MS', 1, 2147483647],
  ['MAX_EXECUTION_MS', 1, 2147483647],
  ['HEARTBEAT_MS', 0, 2147483647],
  ['JOIN_KEEP_MS', 0, 3600000],
  ['JOIN_REMEMBER_MS', 0, 2147483647],
  ['JOIN_GRACE_MS', 0, 3600000],
  ['JOIN_MAX_BYTES', 65536, 67108864],
  ['MAX_BODY_BYTES', 1, 268435456],
  ['MAX_UPLOAD_BYTES', 1, 1073741824],
  ['RATE_LIMIT', 1, 1000000],
  ['RATE_WINDOW_MS', 1, 3600000],
  ['RATE_MAX_WAIT_MS', 0, 600000],
  ['MAX_STREAMS_PER_USER', 1, 1000000],
  ['MAX_STREAMS_PER_ADDRESS', 1, 1000000],
  ['CLIENT_LIMIT_PER_ADDRESS', 0, 1000000000],
  ['CLIENT_LIMIT_PER_SESSION', 0, 1000000000],
  ['LOGIN_MAX_FAILURES', 1, 1000000],
  ['LOGIN_MAX_FAILURES_PER_ADDRESS', 1, 1000000],
  ['SESSION_IDLE_MINUTES', 1, 525600],
  ['SESSION_ABSOLUTE_HOURS', 1, 8760],
  ['GUESTS_PER_ADDRESS', 0, 1000000000],
];

describe('the delay of a shutdown', () => {
  test('is 5 seconds in production, unless it is set', () => {
    expect(loadConfig(PRODUCTION).shutdown.delayMs).toBe(5_000);
    expect(loadConfig({ ...PRODUCTION, SHUTDOWN_DELAY_MS: '0' }).shutdown.delayMs).toBe(0);
  });
});

describe('a variable that is not set', () => {
  test('has its documented default', () => {
    const fallbacks = Object.entries(VARIABLES).map(([name, { fallback }]) => [name, fallback]);
    expect(Object.fromEntries(fallbacks.filter(([, fallback]) => fallback !== undefined))).toEqual({
      PORT: '3000',
      KEEP_ALIVE_MS: '75000',
      CHAT_PAGE: 'off',
      LOG_LEVEL: 'info',
      LOG_ADDRESSES: 'on',
      SHUTDOWN_GRACE_MS: '185000',
      UPSTREAM_RESPONSE_TIMEOUT_MS: '60000',
      MAX_EXECUTION_MS: '180000',
      HEARTBEAT_MS: '15000',
      RESUME_UPSTREAM: 'on',
      END_EVENTS: 'on',
      SUSPEND_ON_LEAVE: 'off',
      JOIN: 'on',
      JOIN_KEEP_MS: '60000',
      JOIN_REMEMBER_MS: '3600000',
      JOIN_GRACE_MS: '10000',
      JOIN_MAX_BYTES: '1048576',
      MAX_BODY_BYTES: '262144',
      MAX_UPLOAD_BYTES: '20971520',
      RATE_LIMIT: '5',
      RATE_WINDOW_MS: '1000',
      REDIS_MODE: 'single',
      RATE_MAX_WAIT_MS: '2000',
      MAX_STREAMS_PER_USER: '8',
      MAX_STREAMS_PER_ADDRESS: '64',
      CLIENT_LIMIT_PER_ADDRESS: '3000',
      CLIENT_LIMIT_PER_SESSION: '300',
      LOGIN_MAX_FAILURES: '10',
      LOGIN_MAX_FAILURES_PER_ADDRESS: '100',
      SESSION_IDLE_MINUTES: '30',
      SESSION_ABSOLUTE_HOURS: '8',
      COOKIE_SAME_SITE: 'strict',
      AUTH_MODE: 'password',
      USERS_FILE: 'users.json',
      OPERATIONS: 'message,chat',
      CHANNELS: 'scoped',
      OIDC_SCOPES: 'openid profile',
      OIDC_KEEP_ID_TOKEN: 'false',
      GUESTS_PER_ADDRESS: '100',
    });
  });

  test('makes the relay a demo on loopback with random secrets, if it is UPSTREAM_BASE_URL', () => {
    const { publicUrl, ...config } = loadConfig({});
    const someSecret = { fingerprint: expect.stringMatching(/^[0-9a-f]{8}$/) };
    expect(publicUrl.href).toBe('http://localhost:3000/');
    expect(config).toEqual({
      demo: true,
      production: false,
      unused: [],
      logLevel: 'info',
      logAddresses: 'on',
      port: 3000,
      keepAliveMs: 75_000,
      connections: { ...loadConfig({}).connections, isSet: false },
      chatPage: false,
      chat: {},
      host: '127.0.0.1',
      basePath: '',
      trustProxy: false,
      allowedOrigins: [],
      corsHeaders: [],
      hosts: { names: ['localhost'], loopback: true },
      shutdown: { delayMs: 0, graceMs: 185_000 },
      upstream: {
        baseUrl: undefined,
        apiKeys: [someSecret],
        own: {},
        keyFiles: { apiKeys: undefined, bots: undefined },
        responseTimeoutMs: 60_000,
        maxExecutionMs: 180_000,
        heartbeatMs: 15_000,
        resume: true,
        endEvents: true,
        forwardQuery: [],
        userHeader: undefined,
      },
      suspendOnLeave: false,
      join: { isOn: true, keepMs: 60_000, rememberMs: 3_600_000, graceMs: 10_000, maxBytes: 1_048_576 },
      bots: ['demo/echo'],
      operations: ['message', 'chat'],
      channels: { mode: 'scoped', secret: someSecret, secretIsSet: false, realm: undefined },
      maxBodyBytes: 262_144,
      maxUploadBytes: 20_971_520,
      rate: { limit: 5, windowMs: 1000, maxWaitMs: 2000 },
      maxStreams: { perUser: 8, perAddress: 64 },
      clientLimits: { perAddress: 3000, perSession: 300 },
      login: { maxFailures: 10, maxFailuresPerAddress: 100 },
      session: { secrets: [someSecret], idleMs: 1_800_000, absoluteMs: 28_800_000, sameSite: 'strict' },
      redis: undefined,
      authMode: 'password',
      usersFile: 'users.json',
      guestsPerAddress: 100,
      oidc: {
        issuer: undefined,
        clientId: undefined,
        clientSecret: undefined,
        scopes: 'openid profile',
        requiredClaim: undefined,
        keepIdToken: false,
      },
    });
  });

  test('gets a new random value at every start, if it is a secret', () => {
    const [one, other] = [loadConfig({}), loadConfig({})];
    expect(opened(one.session.secrets)).not.toEqual(opened(other.session.secrets));
    expect(opened(one.upstream.apiKeys)).not.toEqual(opened(other.upstream.apiKeys));
    expect(one.session.secrets[0]?.open()).toMatch(/^.{64}$/);
    expect(one.channels.secret.open()).toMatch(/^.{64}$/);
    const all = [one, other].flatMap(({ channels, session }) => [channels.secret, ...session.secrets]);
    expect(new Set(opened(all)).size).toBe(4);
  });

  test('makes the relay listen on every address, if it is HOST and there is a bot service', () => {
    expect(loadConfig(PRODUCTION)).toMatchObject({ demo: false, host: '0.0.0.0' });
  });

  test('has the same default as one that is empty', () => {
    const empty = Object.fromEntries(
      Object.keys(VARIABLES).flatMap((name) => [
        [name, ''],
        [`${name}_FILE`, ''],
      ]),
    );
    expect(loadConfig(empty)).toMatchObject({ demo: true, port: 3000, basePath: '', trustProxy: false });
    expect(problemsOf({ ...PRODUCTION, UPSTREAM_API_KEYS: '' })).toEqual([
      'UPSTREAM_API_KEYS must be set in production',
    ]);
  });
});

describe('the hosts that the relay answers to', () => {
  test('are all hosts, if there is a bot service and ALLOWED_HOSTS is not set', () => {
    expect(loadConfig(PRODUCTION).hosts).toBeUndefined();
    expect(loadConfig({ ...PRODUCTION, ALLOWED_HOSTS: 'a.example.com' }).hosts).toEqual({
      names: ['chat.example.com', 'a.example.com'],
      loopback: false,
    });
  });
});

describe('a variable that is set', () => {
  const cases: [environment: Environment, expected: object][] = [
    [{ HOST: '::1' }, { host: '::1' }],
    [{ HOST: 'relay-1.internal.example' }, { host: 'relay-1.internal.example' }],
    [{ HOST: 'fe80::1' }, { host: 'fe80::1' }],
    [{ BASE_PATH: '/chat-api' }, { basePath: '/chat-api' }],
    [{ BASE_PATH: '/a/b.c_~' }, { basePath: '/a/b.c_~' }],
    [{ BASE_PATH: '/..a/b../...' }, { basePath: '/..a/b../...' }],
    [{ TRUST_PROXY: '0' }, { trustProxy: 0 }],
    [{ TRUST_PROXY: '2' }, { trustProxy: 2 }],
    [{ TRUST_PROXY: '10.0.0.0/8, ::1,fd00::/128' }, { trustProxy: ['10.0.0.0/8', '::1', 'fd00::/128'] }],
    [
      { ALLOWED_ORIGINS: 'https://a.example.com, HTTP://B.example.com:80/' },
      { allowedOrigins: ['https://a.example.com', 'http://b.example.com'] },
    ],
    [
      { ALLOWED_ORIGINS: 'https://a.example.com', CORS_HEADERS: 'X-Host-Version, authorization' },
      { corsHeaders: ['X-Host-Version', 'authorization'] },
    ],
    [
      {
        ALLOWED_HOSTS: 'A.example.com:8443, b_1.,::1,[FD00:0::1]',
        PUBLIC_URL: 'https://Chat.example.com.:444',
      },
      {
        hosts: { names: ['chat.example.com', 'a.example.com', 'b_1', '[::1]', '[fd00::1]'], loopback: true },
      },
    ],
    [{ LOG_LEVEL: 'debug' }, { logLevel: 'debug' }],
    [{ LOG_ADDRESSES: 'hashed' }, { logAddresses: 'hashed' }],
    [{ BOTS: 'acme/helper, */echo ,acme/*,*/*,' }, { bots: ['acme/helper', '*/echo', 'acme/*', '*/*'] }],
    [{ FORWARD_QUERY: 'is_debug,a.b-c' }, { upstream: { forwardQuery: ['is_debug', 'a.b-c'] } }],
    [
      { FORWARD_QUERY: 'channel_id,custom_channel,xcustom_channel_id' },
      { upstream: { forwardQuery: ['channel_id', 'custom_channel', 'xcustom_channel_id'] } },
    ],
    [{ OPERATIONS: 'chat, message' }, { operations: ['chat', 'message'] }],
    [{ CHANNELS: 'shared' }, { channels: { mode: 'shared', secretIsSet: false } }],
    [
      { CHANNEL_SECRET: SECRET_A, CHANNEL_REALM: 'our staff' },
      { channels: { mode: 'scoped', secretIsSet: true, realm: 'our staff' } },
    ],
    [{ USER_HEADER: 'X-User-Id' }, { upstream: { userHeader: 'X-User-Id' } }],
    [{ COOKIE_SAME_SITE: 'lax' }, { session: { sameSite: 'lax' } }],
    [{ COOKIE_SAME_SITE: 'none', PUBLIC_URL: 'https://chat.example.com' }, { session: { sameSite: 'none' } }],
    [{ SESSION_IDLE_MINUTES: '2' }, { session: { idleMs: 120_000 } }],
    [{ SESSION_ABSOLUTE_HOURS: '2' }, { session: { absoluteMs: 7_200_000 } }],
    [{ USERS_FILE: '/etc/users.json' }, { usersFile: '/etc/users.json' }],
    [{ MAX_BODY_BYTES: '10' }, { maxBodyBytes: 10 }],
    [
      { MAX_STREAMS_PER_USER: '3', MAX_STREAMS_PER_ADDRESS: '4' },
      { maxStreams: { perUser: 3, perAddress: 4 } },
    ],
    [{ SHUTDOWN_DELAY_MS: '1', SHUTDOWN_GRACE_MS: '2' }, { shutdown: { delayMs: 1, graceMs: 2 } }],
    [
      { RATE_LIMIT: '1', RATE_WINDOW_MS: '2', RATE_MAX_WAIT_MS: '3' },
      { rate: { limit: 1, windowMs: 2, maxWaitMs: 3 } },
    ],
    [
      { UPSTREAM_RESPONSE_TIMEOUT_MS: '1', MAX_EXECUTION_MS: '2', HEARTBEAT_MS: '0' },
      { upstream: { responseTimeoutMs: 1, maxExecutionMs: 2, heartbeatMs: 0 } },
    ],
    [{ SUSPEND_ON_LEAVE: 'on' }, { suspendOnLeave: true }],
    [
      { JOIN: 'off', JOIN_KEEP_MS: '1', JOIN_REMEMBER_MS: '2', JOIN_GRACE_MS: '3', JOIN_MAX_BYTES: '65536' },
      { join: { isOn: false, keepMs: 1, rememberMs: 2, graceMs: 3, maxBytes: 65_536 } },
    ],
    [{ RESUME_UPSTREAM: 'off', END_EVENTS: 'off' }, { upstream: { resume: false, endEvents: false } }],
  ];
  test.each(cases)('is used: %j', (environment, expected) => {
    expect(loadConfig(environment)).toMatchObject(expected);
  });

  test('keeps a URL unchanged', () => {
    const { publicUrl, upstream } = loadConfig(PRODUCTION);
    expect(publicUrl.href).toBe('https://chat.example.com/');
    expect(upstream.baseUrl?.href).toBe('https://bots.example.com/v1');
    expect(loadConfig({ PORT: '8080' }).publicUrl.href).toBe('http://localhost:8080/');
  });

  test.each(WHOLE_NUMBERS)(
    'can have every whole number in its range: %s, from %i to %i',
    (name, min, max) => {
      for (const value of [min, max]) expect(problemsOf({ [name]: String(value) })).toEqual([]);
      for (const value of [min - 1, max + 1]) {
        expect(problemsOf({ [name]: String(value) })).toEqual([
          expect.stringMatching(`^${name} must be a whole number.* from ${min} to ${max}$`),
        ]);
      }
    },
  );

  test('cannot be changed later', () => {
    const config = loadConfig({ ...PRODUCTION, TRUST_PROXY: '::1', FORWARD_QUERY: 'a' });
    const visited: string[] = [];
    const visit = (value: unknown, path: string) => {
      if (typeof value !== 'object' || value === null || value instanceof URL) return;
      visited.push(path);
      expect({ path, frozen: Object.isFrozen(value) }).toEqual({ path, frozen: true });
      for (const [name, inner] of Object.entries(value)) visit(inner, `${path}.${name}`);
    };
    visit(config, 'config');
    expect(visited).toEqual(
      expect.arrayContaining(['config', 'config.upstream.apiKeys.0', 'config.rate', 'config.bots']),
    );
  });
});

describe('an invalid value is refused with the name of the variable and without the value', () => {
  const wrong: Record<string, string[]> = {
    NODE_ENV: ['canary-env', 'Production', 'prod'],
    BASE_PATH: [
      'canary',
      '/canary/',
      '/canary//b',
      '/canary b',
      '/canary?x',
      '/canary%2f',
      '//canary',
      '/.',
      '/..',
      '/canary/../b',
      '/./canary',
      '/canary/..',
    ],
    PUBLIC_URL: [
      'canary.example.com',
      'ftp://canary.example.com',
      'https://canary.example.com/chat',
      'https://canary@example.com',
      'https://:canary@example.com',
      'https://canary.example.com?x=1',
      'https://canary.example.com#x',
      'null',
    ],
    HOST: ['canary!', 'canary host', '-canary..b', 'canary:3000', 'https://canary'],
    TRUST_PROXY: [
      '0.0.0.0/0',
      '::/0',
      '10.0.0.1,0.0.0.0/0',
      '10.0.0.0/00',
      'true',
      'canary',
      '-1',
      '100',
      '10.0.0.0/33',
      '::1/129',
      '10.0.0.1/',
      '1.2.3.4/8/8',
      '::1,,::2',
    ],
    ALLOWED_ORIGINS: ['*', 'canary.example.com', 'https://a.example.com,canary', 'https://canary.com/x', ','],
    CORS_HEADERS: ['*', 'X-Canary: 1', 'can ary', 'a\ncanary', ','],
    ALLOWED_HOSTS: [
      '*',
      '*.canary.com',
      'https://canary.com',
      'canary.com/',
      'x@canary',
      'a,can ary',
      '1.2.3.4.5',
      ',',
    ],
    LOG_LEVEL: ['canary-level', 'INFO'],
    LOG_ADDRESSES: ['canary', 'true'],
    UPSTREAM_BASE_URL: [
      'canary.example.com',
      'file:///canary',
      'https://canary@bots.example.com',
      'https://bots.example.com?canary=1',
      'https://bots.example.com#canary',
    ],
    UPSTREAM_API_KEYS: ['canary key', 'canary-ü', 'good,canary\tkey', ',\n,'],
    BOTS: [
      'canary',
      'canary/',
      '/canary',
      'a/b/canary',
      'canary/..',
      './canary',
      'canary/.',
      '../canary',
      'a/b,canary',
      'a/can*ary',
      'a/c%20anary',
      '**/canary',
      ',',
    ],
    FORWARD_QUERY: [
      'canary=1',
      'canary&x',
      ',',
      ...['custom_channel_id', 'customChannelId', 'CUSTOM-CHANNEL.ID', '_custom_channel_id_'],
      ...['custom_channel_id.x', 'customChannelId.', 'is_debug,custom_channel_id'],
      ...['bypass_tool_call_consent', 'bypassToolCallConsent', 'Bypass-Tool-Call-Consent.x'],
    ],
    CHANNELS: ['canary', 'Scoped', 'owned', 'scoped,shared'],
    CHANNEL_SECRET: [
      'canary-too-short-0123456789',
      'canary-please-change-me-0123456789-abcdefghij',
      'ab'.repeat(20),
    ],
    USER_HEADER: [
      'canary header',
      'canary:',
      'X-API-KEY',
      'cookie',
      'Authorization',
      'Content-Length',
      'Host',
    ],
    CHAT_PAGE: ['canary', 'On', 'true', '1'],
    CHAT_FILE: ['/no/canary'],
    RESUME_UPSTREAM: ['canary', 'On', 'true', '1'],
    END_EVENTS: ['canary', 'On', 'true', '1'],
    SUSPEND_ON_LEAVE: ['canary', 'On', 'true'],
    JOIN: ['canary', 'On', 'true'],
    SESSION_SECRETS: ['canary-too-short-0123456789', `${SECRET_A},canary-too-short`, ','],
    COOKIE_SAME_SITE: ['canary', 'Strict'],
    REDIS_URL: [
      'canary',
      'redis:canary',
      'http://canary',
      'redis://',
      'redis://canary/db',
      'redis://canary?db=1',
      'redis://:canary%@host',
      'redis://canary,',
      'redis://canary:1,redis://canary:2',
      'redis://canary:1,other:port',
    ],
    REDIS_MODE: ['canary', 'Cluster', 'cluster,sentinel'],
    AUTH_MODE: ['canary', 'none'],
    OIDC_ISSUER: [
      'canary.example.com',
      'http://canary.example.com',
      'http://127.0.0.1.canary.example.com',
      'ftp://canary.example.com',
      'https://canary@id.example.com',
      'https://id.example.com?canary=1',
      'https://id.example.com#canary',
      'https://canary.example.com/.well-known/openid-configuration',
    ],
    OIDC_CLIENT_ID: ['canary client', 'canary-ü', `canary${'x'.repeat(256)}`],
    OIDC_CLIENT_SECRET: ['canary secret', 'canary-ü'],
    OPERATIONS: ['canary', 'message,canary', 'message chat'],
    OIDC_SCOPES: ['canary', 'profile canary', 'openid,canary', 'openidcanary', 'openid  canary', ' openid'],
    OIDC_REQUIRED_CLAIM: ['canary', ':canary', 'canary:', 'canary: ', ' :canary', 'canary:value '],
    OIDC_KEEP_ID_TOKEN: ['canary', 'True', 'yes', '1'],
    METRICS_PORT: ['canary'],
    KEEP_ALIVE_MS: ['canary', '0'],
    MAX_CONNECTIONS: ['canary', '0'],
    ...Object.fromEntries(
      WHOLE_NUMBERS.map(([name]) => [
        name,
        ['canary', 'five', '-5', '-0', '5.5', '1e3', '0x10', ' 5', '5ms', '12345678901'],
      ]),
    ),
  };
  const cases = Object.entries(wrong).flatMap(([name, values]) =>
    values.map((value) => [name, value] as const),
  );

  test.each(cases)('%s=%j', (name, value) => {
    const { [name as 'BOTS']: _replaced, ...others } = PRODUCTION;
    const problems = problemsOf({ ...others, [name]: value });
    expect(problems.length).toBeGreaterThan(0);
    for (const problem of problems) {
      expect(problem).toMatch(new RegExp(`^${name} \\w`));
      expect(problem).not.toMatch(/canary/i);
    }
  });

  test('every variable with its own format is in this table', () => {
    const free = ['BOTS_FILE', 'USERS_FILE', 'CHANNEL_REALM'];
    const names = Object.keys(VARIABLES).filter((name) => !free.includes(name));
    // tests/redis-settings.test.ts has those of TLS and Sentinel.
    expect(names.filter((name) => !/^REDIS_(TLS|SENTINEL)_/.test(name)).sort()).toEqual(
      Object.keys(wrong).sort(),
    );
  });

  test('a limit of "five" is refused and does not become the default', () => {
    expect(problemsOf({ RATE_LIMIT: 'five' })).toEqual([
      'RATE_LIMIT must be a whole number from 1 to 1000000',
    ]);
  });

  test('all problems are reported at once, each of them once', () => {
    expect(
      problemsOf({
        PORT: 'canary',
        BOTS: 'canary,canary2,canary3',
        LOG_LEVEL: 'canary',
        UPSTREAM_API_KEYS: 'canary key,another canary',
        BOTS_FILE: 'canary.json',
        COOKIE_SAME_SITE: 'none',
      }),
    ).toEqual([
      expect.stringMatching(/^PORT must be/),
      expect.stringMatching(/^LOG_LEVEL must be/),
      expect.stringMatching(/^UPSTREAM_API_KEYS holds/),
      expect.stringMatching(/^BOTS must be/),
      'BOTS_FILE names a file that cannot be read (ENOENT)',
      'UPSTREAM_BASE_URL must be set with UPSTREAM_API_KEYS',
      'COOKIE_SAME_SITE=none needs an https PUBLIC_URL',
    ]);
  });

  test('CHANNEL_SECRET cannot be one of SESSION_SECRETS', () => {
    const problem =
      'CHANNEL_SECRET must not be one of SESSION_SECRETS: those are replaced from time to time, and it never is';
    for (const SESSION_SECRETS of [SECRET_A, `${SECRET_B},${SECRET_A}`])
      expect(problemsOf({ SESSION_SECRETS, CHANNEL_SECRET: SECRET_A })).toEqual([problem]);
    expect(problemsOf({ SESSION_SECRETS: SECRET_B, CHANNEL_SECRET: SECRET_A })).toEqual([]);
  });

  test('METRICS_PORT cannot be the public port', () => {
    expect(problemsOf({ METRICS_PORT: '3000' })).toEqual([
      'METRICS_PORT must not be PORT: metrics are not for the public',
    ]);
    expect(loadConfig({ METRICS_PORT: '9090' }).metricsPort).toBe(9090);
    expect(loadConfig({}).metricsPort).toBeUndefined();
  });

  test.each([
    [
      'OIDC_REQUIRED_CLAIM',
      'groups:canary-users',
      'OIDC_REQUIRED_CLAIM is set, but AUTH_MODE is not oidc: it would keep nobody out',
    ],
    [
      'OIDC_REQUIRED_CLAIM',
      'canary',
      'OIDC_REQUIRED_CLAIM is set, but AUTH_MODE is not oidc: it would keep nobody out',
    ],
    [
      'OIDC_ISSUER',
      'https://canary.example.com',
      'OIDC_ISSUER is set, but AUTH_MODE is not oidc: nobody would be sent there to sign in',
    ],
  ])('%s=%s without AUTH_MODE=oidc is refused, since it would have no effect', (name, value, problem) => {
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

  test('CORS_HEADERS without ALLOWED_ORIGINS is refused, since it would have no effect', () => {
    expect(problemsOf({ CORS_HEADERS: 'X-Host' })).toEqual([
      'CORS_HEADERS is set, but ALLOWED_ORIGINS is not: no page of another origin may send anything',
    ]);
  });

  test.each([[{}], [{ PUBLIC_URL: 'http://chat.example.com' }]])(
    'COOKIE_SAME_SITE=none without https is refused (%j)',
    (environment) => {
      expect(problemsOf({ ...environment, COOKIE_SAME_SITE: 'none' })).toEqual([
        'COOKIE_SAME_SITE=none needs an https PUBLIC_URL',
      ]);
    },
  );
});

describe('a required variable that is missing', () => {
  test('is a problem: a secret that all instances need, with REDIS_URL', () => {
    expect(problemsOf({ REDIS_URL: 'redis://redis' })).toEqual([
      'SESSION_SECRETS must be set with REDIS_URL',
      'CHANNEL_SECRET must be set with REDIS_URL, unless CHANNELS is shared',
    ]);
  });

  test('is not CHANNEL_SECRET, with CHANNELS=shared', () => {
    const { CHANNEL_SECRET: _left, ...others } = PRODUCTION;
    const shared = { ...others, CHANNELS: 'shared', REDIS_URL: 'redis://redis' };
    expect(problemsOf(shared)).toEqual([]);
    expect(problemsOf({ ...shared, CHANNELS: 'scoped' })).toEqual([missingInProduction('CHANNEL_SECRET')]);
    // The mode is wrong, which has its own problem.
    expect(problemsOf({ ...shared, CHANNELS: 'canary' })).toEqual(['CHANNELS must be scoped or shared']);
  });

  const required = Object.keys(PRODUCTION).filter((name) => name !== 'NODE_ENV');

  test.each(required)('is one problem: %s in production', (name) => {
    expect(problemsOf(PRODUCTION)).toEqual([]);
    expect(problemsOf({ ...PRODUCTION, [name]: undefined })).toEqual([missingInProduction(name)]);
  });

  test('is reported with all others, so production never becomes the demo', () => {
    expect(problemsOf({ NODE_ENV: 'production' })).toEqual(required.map(missingInProduction));
  });

  test('is a problem: a variable that a bot service needs, if one of them is set', () => {
    expect(problemsOf({ UPSTREAM_BASE_URL: 'http://localhost:1' })).toEqual([
      'UPSTREAM_API_KEYS must be set with UPSTREAM_BASE_URL',
      'BOTS must be set with UPSTREAM_BASE_URL',
    ]);
    expect(problemsOf({ UPSTREAM_API_KEYS: 'canary' })).toEqual([
      'UPSTREAM_BASE_URL must be set with UPSTREAM_API_KEYS',
    ]);
    const { UPSTREAM_BASE_URL, UPSTREAM_API_KEYS, BOTS } = PRODUCTION;
    expect(problemsOf({ UPSTREAM_BASE_URL, UPSTREAM_API_KEYS, BOTS })).toEqual([]);
  });

  test('is not a variable with an invalid value, which has only one problem', () => {
    expect(problemsOf({ ...PRODUCTION, UPSTREAM_API_KEYS: 'canary key' })).toHaveLength(1);
    expect(problemsOf({ ...PRODUCTION, UPSTREAM_BASE_URL: 'canary' })).toHaveLength(1);
  });
});

describe('AUTH_MODE=oidc', () => {
  const required = ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'];

  test.each([[{}], [PRODUCTION]])('needs only these variables, also in the demo: %j', (others) => {
    const { demo, authMode, oidc } = loadConfig({ ...others, ...OIDC });
    expect({ demo, authMode }).toEqual({ demo: !('BOTS' in others), authMode: 'oidc' });
    expect(oidc.issuer.href).toBe(OIDC.OIDC_ISSUER);
    expect(oidc.clientSecret.open()).toBe(OIDC.OIDC_CLIENT_SECRET);
    expect(oidc).toMatchObject({ clientId: 'bot-relay', scopes: 'openid profile', keepIdToken: false });
    expect(oidc.requiredClaim).toBeUndefined();
  });

  test.each(required)('needs %s, which is one problem', (name) => {
    const problem = `${name} must be set with AUTH_MODE=oidc`;
    expect(problemsOf({ ...OIDC, [name]: undefined })).toEqual([problem]);
    expect(problemsOf({ ...PRODUCTION, ...OIDC, [name]: '' })).toEqual([problem]);
    // A variable with an invalid value has only one problem.
    expect(problemsOf({ ...OIDC, [name]: 'canary wrong' })).toEqual([
      expect.stringMatching(new RegExp(`^${name} (?!must be set)`)),
    ]);
  });

  test('reports all problems at once, and no value', () => {
    const problems = problemsOf({
      NODE_ENV: 'production',
      AUTH_MODE: 'oidc',
      OIDC_ISSUER: 'http://canary.example.com',
      OIDC_CLIENT_ID: 'canary id',
      OIDC_CLIENT_SECRET: 'canary secret',
      OIDC_SCOPES: 'canary',
      OIDC_REQUIRED_CLAIM: 'canary',
      OIDC_KEEP_ID_TOKEN: 'canary',
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

  test.each(['http://localhost:8080/realms/staff', 'http://127.0.0.1:8080/', 'http://[::1]:8080/'])(
    'an issuer on this machine needs no TLS: %s',
    (OIDC_ISSUER) => {
      expect(loadConfig({ ...OIDC, OIDC_ISSUER }).oidc.issuer.href).toBe(OIDC_ISSUER);
    },
  );

  test('uses OIDC_KEEP_ID_TOKEN, OIDC_SCOPES and a secret in a file', () => {
    const { oidc } = loadConfig({
      ...OIDC,
      OIDC_CLIENT_SECRET: '',
      OIDC_CLIENT_SECRET_FILE: file('client-secret', 'canary-from-file\n'),
      OIDC_KEEP_ID_TOKEN: 'true',
      OIDC_SCOPES: 'groups openid',
    });
    expect(oidc).toMatchObject({ keepIdToken: true, scopes: 'groups openid' });
    expect(oidc.clientSecret.open()).toBe('canary-from-file');
    expect(JSON.stringify(oidc)).not.toMatch(/canary/);
  });

  test('needs an address for the callback, which PORT=0 without PUBLIC_URL is not', () => {
    expect(problemsOf({ ...OIDC, PORT: '0' })).toEqual([
      'PUBLIC_URL must be set with AUTH_MODE=oidc and PORT=0: the provider sends browsers there',
    ]);
    expect(problemsOf({ ...OIDC, PORT: '0', PUBLIC_URL: 'https://chat.example.com' })).toEqual([]);
    expect(problemsOf({ PORT: '0', AUTH_MODE: 'guest' })).toEqual([]);
  });
});

describe('AUTH_MODE=guest', () => {
  test('needs no other variable, in the demo or not', () => {
    expect(loadConfig({ AUTH_MODE: 'guest' })).toMatchObject({ demo: true, authMode: 'guest' });
    expect(loadConfig({ ...PRODUCTION, AUTH_MODE: 'guest', GUESTS_PER_ADDRESS: '0' })).toMatchObject({
      authMode: 'guest',
      guestsPerAddress: 0,
    });
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
    ['fewer than 32 characters', 'abcdefgh-0123456789-ABCDEFGH-01', /fewer than 32/],
    ['few different characters', 'abababababababababababababababababab', /easily guessed/],
    ['the words of a sample', 'please-change-me-0123456789-abcdefghij', /easily guessed/],
    ['the words of an example', 'an-EXAMPLE-secret-0123456789-abcdefgh', /easily guessed/],
  ])('of sessions are refused with %s', (_why, value, expected) => {
    const problems = problemsOf({ SESSION_SECRETS: `${SECRET_A},${value}` });
    expect(problems).toEqual([expect.stringMatching(expected)]);
    expect(problems[0]).not.toContain(value);
  });

  test('of sessions need at least 32 characters', () => {
    expect(problemsOf({ SESSION_SECRETS: 'abcdefgh-0123456789-ABCDEFGH-012' })).toEqual([]);
  });

  test('can come from a file, whose line end is not part of them', () => {
    const config = loadConfig({
      ...PRODUCTION,
      UPSTREAM_API_KEYS: '',
      UPSTREAM_API_KEYS_FILE: file('keys', 'key-1\nkey-2\r\n'),
      SESSION_SECRETS: undefined,
      SESSION_SECRETS_FILE: file('secret', `${SECRET_A}\n`),
      CHANNEL_SECRET: undefined,
      CHANNEL_SECRET_FILE: file('channel', `${SECRET_B},${SECRET_A}\r\n`),
    });
    expect(opened(config.upstream.apiKeys)).toEqual(['key-1', 'key-2']);
    expect(opened(config.session.secrets)).toEqual([SECRET_A]);
    // It is one secret, also with a comma in it.
    expect(config.channels.secret.open()).toBe(`${SECRET_B},${SECRET_A}`);
    // A new line is no separator in this variable.
    expect(problemsOf({ OIDC_CLIENT_SECRET_FILE: file('client', 'canary-client\n') })).toEqual([]);
  });

  test('from a file count as set, and are checked in the same way', () => {
    const bad = problemsOf({
      ...PRODUCTION,
      SESSION_SECRETS: '',
      SESSION_SECRETS_FILE: file('bad', 'canary-Aa0123'),
    });
    expect(bad).toEqual([expect.stringMatching(/^SESSION_SECRETS holds a secret of fewer than 32/)]);
  });

  test.each(['UPSTREAM_API_KEYS', 'SESSION_SECRETS', 'CHANNEL_SECRET', 'OIDC_CLIENT_SECRET'])(
    '%s and %s_FILE cannot be set both, nor name a file that is missing or empty',
    (name) => {
      const withFile = (path: string, value?: string) =>
        problemsOf({ ...PRODUCTION, [name]: value, [`${name}_FILE`]: path });
      expect(withFile(file('full', SECRET_A), SECRET_B)).toEqual([
        `${name} and ${name}_FILE are both set; set one of them`,
      ]);
      expect(withFile(join(folder, 'canary-missing'))).toEqual([
        `${name}_FILE names a file that cannot be read (ENOENT)`,
      ]);
      expect(withFile(folder)).toEqual([`${name}_FILE names a file that cannot be read (EISDIR)`]);
      expect(withFile(file('empty', ' \n'))).toEqual([`${name}_FILE names an empty file`]);
    },
  );

  test('are the only variables with a _FILE', () => {
    const secrets = Object.entries(VARIABLES).filter(([, { secret }]) => secret);
    expect(secrets.map(([name]) => name)).toEqual([
      'UPSTREAM_API_KEYS',
      'CHANNEL_SECRET',
      'SESSION_SECRETS',
      'REDIS_URL',
      'REDIS_SENTINEL_PASSWORD',
      'REDIS_TLS_CA',
      'REDIS_TLS_CERT',
      'REDIS_TLS_KEY',
      'OIDC_CLIENT_SECRET',
    ]);
    expect(problemsOf({ PORT_FILE: file('port', '8080') })).toEqual([
      'PORT_FILE is not a variable of the relay: PORT cannot be given as a file',
    ]);
  });

  test('do not show when the configuration is printed', () => {
    expect(JSON.stringify(loadConfig(PRODUCTION))).not.toMatch(/canary/i);
  });
});

describe('MAX_CONNECTIONS', () => {
  const of = (environment: Environment) => loadConfig(environment).connections;

  test('is by default what the limit of open files allows, and at most 32,000', () => {
    const { most, openFiles } = of({});
    const [, limit] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    expect(openFiles).toBe(Number(limit));
    expect(most).toBe(Math.min(Math.floor((Number(limit) - 256) / 2), 32_000));
  });

  test('is for all addresses together, and a quarter of it for each where no proxy is trusted', () => {
    expect(of({ MAX_CONNECTIONS: '9' })).toMatchObject({ most: 9, mostOfAddress: 2, isSet: true });
    expect(of({ MAX_CONNECTIONS: '9', TRUST_PROXY: '0' })).toMatchObject({ most: 9, mostOfAddress: 2 });
    expect(of({ MAX_CONNECTIONS: '1' })).toMatchObject({ most: 1, mostOfAddress: 1 });
    for (const TRUST_PROXY of ['1', '10.0.0.0/8'])
      expect(of({ MAX_CONNECTIONS: '9', TRUST_PROXY })).toMatchObject({
        mostOfAddress: Number.POSITIVE_INFINITY,
      });
  });
});
