import { readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';
import { type Config, loadConfig } from '../../src/config/config.ts';
import type { Environment } from '../../src/config/environment.ts';
import { isModelKey, MODEL_KEYS } from '../../src/config/service-model.ts';
import { isVariable, VARIABLES } from '../../src/config/variables.ts';
import { PRODUCTION, problemsOf, SECRET_A } from '../harness/relay/environments.ts';

const opened = (secrets: Config['session']['secrets']) => secrets.map((secret) => secret.open());

const RANGES = `
  PORT 0 65535, SHUTDOWN_DELAY_MS 0 2147483647, SHUTDOWN_GRACE_MS 0 2147483647, MAX_EXECUTION_MS 1 2147483647,
  UPSTREAM_RESPONSE_TIMEOUT_MS 1 2147483647, HEARTBEAT_MS 0 2147483647, JOIN_KEEP_MS 0 3600000,
  JOIN_REMEMBER_MS 0 2147483647, JOIN_GRACE_MS 0 3600000, JOIN_MAX_BYTES 65536 67108864, MAX_BODY_BYTES 1 268435456,
  MAX_UPLOAD_BYTES 1 1073741824, RATE_LIMIT 1 1000000, RATE_WINDOW_MS 1 3600000, RATE_MAX_WAIT_MS 0 600000,
  MAX_STREAMS_PER_USER 1 1000000, MAX_STREAMS_PER_ADDRESS 1 1000000, CLIENT_LIMIT_PER_ADDRESS 0 1000000000,
  CLIENT_LIMIT_PER_SESSION 0 1000000000, LOGIN_MAX_FAILURES 1 1000000, LOGIN_MAX_FAILURES_PER_ADDRESS 1 1000000,
  SESSION_IDLE_MINUTES 1 525600, SESSION_ABSOLUTE_HOURS 1 8760, GUESTS_PER_ADDRESS 0 1000000000,
  SERVICE_PORT 0 65535, SERVICE_CONSOLE_PORT 0 65535, SERVICE_KEEP_DAYS 1 3650`;
const WHOLE_NUMBERS = RANGES.split(',').map((text) => text.trim().split(' ') as [string, string, string]);

describe('a variable that is not set', () => {
  test('makes the relay a demo on loopback with random secrets, if it is UPSTREAM_BASE_URL', () => {
    const { publicUrl, ...config } = loadConfig({});
    const someSecret = { fingerprint: expect.stringMatching(/^[0-9a-f]{8}$/) };
    expect(publicUrl.href).toBe('http://localhost:3000/');
    expect(config).toEqual({
      ...{ demo: true, production: false, unused: [], logLevel: 'info', logAddresses: 'on' },
      ...{ port: 3000, host: '127.0.0.1', basePath: '', keepAliveMs: 75_000 },
      connections: { ...loadConfig({}).connections, isSet: false },
      ...{ chatPage: false, chat: {}, trustProxy: false, allowedOrigins: [], corsHeaders: [] },
      hosts: { names: ['localhost'], loopback: true },
      shutdown: { delayMs: 0, graceMs: 185_000 },
      upstream: {
        ...{ baseUrl: undefined, apiKeys: [someSecret], own: {} },
        keyFiles: { apiKeys: undefined, bots: undefined },
        ...{ responseTimeoutMs: 60_000, maxExecutionMs: 180_000, heartbeatMs: 15_000 },
        ...{ resume: true, endEvents: true, forwardQuery: [], userHeader: undefined },
      },
      suspendOnLeave: false,
      join: { isOn: true, keepMs: 60_000, rememberMs: 3_600_000, graceMs: 10_000, maxBytes: 1_048_576 },
      ...{ bots: ['demo/echo'], operations: ['message', 'chat'] },
      channels: { mode: 'scoped', secret: someSecret, secretIsSet: false, realm: undefined },
      ...{ maxBodyBytes: 262_144, maxUploadBytes: 20_971_520 },
      rate: { limit: 5, windowMs: 1000, maxWaitMs: 2000 },
      maxStreams: { perUser: 8, perAddress: 64 },
      clientLimits: { perAddress: 3000, perSession: 300 },
      login: { maxFailures: 10, maxFailuresPerAddress: 100 },
      session: { secrets: [someSecret], idleMs: 1_800_000, absoluteMs: 28_800_000, sameSite: 'strict' },
      ...{ redis: undefined, authMode: 'password', usersFile: 'users.json', guestsPerAddress: 100 },
      oidc: {
        ...{ issuer: undefined, clientId: undefined, clientSecret: undefined, scopes: 'openid profile' },
        ...{ requiredClaim: undefined, keepIdToken: false },
      },
      service: {
        ...{
          data: undefined,
          secret: undefined,
          host: '127.0.0.1',
          port: 4000,
          keepDays: 30,
          model: undefined,
        },
        console: { host: '127.0.0.1', port: undefined, publicUrl: undefined },
      },
    });
  });

  test('gets a new random value at every start, if it is a secret', () => {
    const [one, other] = [loadConfig({}), loadConfig({})];
    const all = [one, other].flatMap(({ channels, session, upstream }) => [
      ...[channels.secret, ...session.secrets, ...upstream.apiKeys],
    ]);
    expect(new Set(opened(all)).size).toBe(6);
    expect(one.session.secrets[0]?.open()).toMatch(/^.{64}$/);
    expect(one.channels.secret.open()).toMatch(/^.{64}$/);
  });

  test('has another default in production, or with a bot service', () => {
    expect(loadConfig(PRODUCTION)).toMatchObject({ demo: false, host: '0.0.0.0', hosts: undefined });
    expect(loadConfig(PRODUCTION).shutdown.delayMs).toBe(5_000);
    expect(loadConfig({ ...PRODUCTION, SHUTDOWN_DELAY_MS: '0' }).shutdown.delayMs).toBe(0);
    const hosts = { names: ['chat.example.com', 'a.example.com'], loopback: false };
    expect(loadConfig({ ...PRODUCTION, ALLOWED_HOSTS: 'a.example.com' }).hosts).toEqual(hosts);
  });

  test('has the same default as one that is empty', () => {
    const names = Object.keys(VARIABLES).flatMap((name) => [name, `${name}_FILE`]);
    const empty = Object.fromEntries(names.map((name) => [name, '']));
    expect(loadConfig(empty)).toMatchObject({ demo: true, port: 3000, basePath: '', trustProxy: false });
    const problems = problemsOf({ ...PRODUCTION, UPSTREAM_API_KEYS: '' });
    expect(problems).toEqual(['UPSTREAM_API_KEYS must be set in production']);
  });
});

/** The environment of a text such as `A=b; C=d`. */
const parse = (text: string): Environment =>
  Object.fromEntries(text.split('; ').map((one) => [one.split('=')[0], one.slice(one.indexOf('=') + 1)]));

describe('a variable that is set', () => {
  test.each<[string, object]>([
    ['HOST=::1', { host: '::1' }],
    ['HOST=relay-1.internal.example', { host: 'relay-1.internal.example' }],
    ['HOST=fe80::1', { host: 'fe80::1' }],
    ['BASE_PATH=/chat-api', { basePath: '/chat-api' }],
    ['BASE_PATH=/a/b.c_~', { basePath: '/a/b.c_~' }],
    ['BASE_PATH=/..a/b../...', { basePath: '/..a/b../...' }],
    ['TRUST_PROXY=0', { trustProxy: 0 }],
    ['TRUST_PROXY=2', { trustProxy: 2 }],
    ['TRUST_PROXY=10.0.0.0/8, ::1,fd00::/128', { trustProxy: ['10.0.0.0/8', '::1', 'fd00::/128'] }],
    [
      'ALLOWED_ORIGINS=https://a.example.com, HTTP://B.example.com:80/; CORS_HEADERS=X-Host-Version, authorization',
      {
        allowedOrigins: ['https://a.example.com', 'http://b.example.com'],
        corsHeaders: ['X-Host-Version', 'authorization'],
      },
    ],
    [
      'ALLOWED_HOSTS=A.example.com:8443, b_1.,::1,[FD00:0::1]; PUBLIC_URL=https://Chat.example.com.:444',
      {
        hosts: { names: ['chat.example.com', 'a.example.com', 'b_1', '[::1]', '[fd00::1]'], loopback: true },
      },
    ],
    ['LOG_LEVEL=debug; LOG_ADDRESSES=hashed', { logLevel: 'debug', logAddresses: 'hashed' }],
    ['BOTS=acme/helper, */echo ,acme/*,*/*,', { bots: ['acme/helper', '*/echo', 'acme/*', '*/*'] }],
    ['FORWARD_QUERY=is_debug,a.b-c', { upstream: { forwardQuery: ['is_debug', 'a.b-c'] } }],
    [
      'FORWARD_QUERY=channel_id,custom_channel,xcustom_channel_id',
      { upstream: { forwardQuery: ['channel_id', 'custom_channel', 'xcustom_channel_id'] } },
    ],
    ['OPERATIONS=chat, message', { operations: ['chat', 'message'] }],
    ['CHANNELS=shared', { channels: { mode: 'shared', secretIsSet: false } }],
    [
      `CHANNEL_SECRET=${SECRET_A}; CHANNEL_REALM=our staff`,
      { channels: { mode: 'scoped', secretIsSet: true, realm: 'our staff' } },
    ],
    ['USER_HEADER=X-User-Id', { upstream: { userHeader: 'X-User-Id' } }],
    ['COOKIE_SAME_SITE=lax', { session: { sameSite: 'lax' } }],
    ['COOKIE_SAME_SITE=none; PUBLIC_URL=https://chat.example.com', { session: { sameSite: 'none' } }],
    [
      'SESSION_IDLE_MINUTES=2; SESSION_ABSOLUTE_HOURS=2',
      { session: { idleMs: 120_000, absoluteMs: 7_200_000 } },
    ],
    [
      'SERVICE_MODEL=openai-compatible/org/model:7b; SERVICE_ENDPOINT=http://127.0.0.1:11434/v1',
      {
        bots: ['demo/assistant', 'demo/echo'],
        service: {
          model: {
            ...{ kind: 'openai-compatible', model: 'org/model:7b', key: undefined },
            endpoint: 'http://127.0.0.1:11434/v1',
          },
        },
      },
    ],
    [
      'SERVICE_CONSOLE_HOST=::; SERVICE_CONSOLE_PORT=4001; SERVICE_CONSOLE_URL=https://bots.example.com',
      { service: { console: { host: '::', port: 4001, publicUrl: new URL('https://bots.example.com') } } },
    ],
    ['USERS_FILE=/etc/users.json', { usersFile: '/etc/users.json' }],
    ['MAX_BODY_BYTES=10', { maxBodyBytes: 10 }],
    ['MAX_STREAMS_PER_USER=3; MAX_STREAMS_PER_ADDRESS=4', { maxStreams: { perUser: 3, perAddress: 4 } }],
    ['SHUTDOWN_DELAY_MS=1; SHUTDOWN_GRACE_MS=2', { shutdown: { delayMs: 1, graceMs: 2 } }],
    ['RATE_LIMIT=1; RATE_WINDOW_MS=2; RATE_MAX_WAIT_MS=3', { rate: { limit: 1, windowMs: 2, maxWaitMs: 3 } }],
    [
      'UPSTREAM_RESPONSE_TIMEOUT_MS=1; MAX_EXECUTION_MS=2; HEARTBEAT_MS=0',
      { upstream: { responseTimeoutMs: 1, maxExecutionMs: 2, heartbeatMs: 0 } },
    ],
    ['SUSPEND_ON_LEAVE=on', { suspendOnLeave: true }],
    [
      'JOIN=off; JOIN_KEEP_MS=1; JOIN_REMEMBER_MS=2; JOIN_GRACE_MS=3; JOIN_MAX_BYTES=65536',
      { join: { isOn: false, keepMs: 1, rememberMs: 2, graceMs: 3, maxBytes: 65_536 } },
    ],
    ['RESUME_UPSTREAM=off; END_EVENTS=off', { upstream: { resume: false, endEvents: false } }],
    ['AUTH_MODE=guest; GUESTS_PER_ADDRESS=0', { demo: true, authMode: 'guest', guestsPerAddress: 0 }],
  ])('is used: %s', (environment, expected) => {
    expect(loadConfig(parse(environment))).toMatchObject(expected);
  });

  test('keeps a URL unchanged', () => {
    const { publicUrl, upstream } = loadConfig(PRODUCTION);
    expect(publicUrl.href).toBe('https://chat.example.com/');
    expect(upstream.baseUrl?.href).toBe('https://bots.example.com/v1');
    expect(loadConfig({ PORT: '8080' }).publicUrl.href).toBe('http://localhost:8080/');
  });

  test.each(WHOLE_NUMBERS)(
    'can have every whole number in its range: %s, from %s to %s',
    (name, min, max) => {
      for (const value of [min, max]) expect(problemsOf({ [name]: value })).toEqual([]);
      const problem = expect.stringMatching(`^${name} must be a whole number.* from ${min} to ${max}$`);
      for (const value of [Number(min) - 1, Number(max) + 1])
        expect(problemsOf({ [name]: String(value) })).toEqual([problem]);
    },
  );

  test('has a longest name of a host, of 253 characters', () => {
    const host = (length: number) => `${'abcdefg.'.repeat(40)}`.slice(0, length - 1).concat('z');
    expect([problemsOf({ HOST: host(253) }), problemsOf({ HOST: host(254) }).length]).toEqual([[], 1]);
  });

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
    const some = ['config', 'config.upstream.apiKeys.0', 'config.rate', 'config.bots'];
    expect(visited).toEqual(expect.arrayContaining(some));
  });
});

describe('an invalid value is refused with the name of the variable and without the value', () => {
  /** Values between ` | `. */
  const wrong: Record<string, string> = {
    NODE_ENV: 'canary-env | Production | prod',
    BASE_PATH:
      'canary | /canary/ | /canary//b | /canary b | /canary?x | /canary%2f | //canary | /. | /.. | /canary/../b | /./canary | /canary/..',
    PUBLIC_URL:
      'canary.example.com | ftp://canary.example.com | https://canary.example.com/chat | https://canary@example.com | https://:canary@example.com | https://canary.example.com?x=1 | https://canary.example.com#x | null',
    HOST: 'canary! | canary host | -canary..b | canary:3000 | https://canary',
    TRUST_PROXY:
      '0.0.0.0/0 | ::/0 | 10.0.0.1,0.0.0.0/0 | 10.0.0.0/00 | true | canary | -1 | 100 | 10.0.0.0/33 | ::1/129 | 10.0.0.1/ | 1.2.3.4/8/8 | ::1,,::2',
    ALLOWED_ORIGINS: '* | canary.example.com | https://a.example.com,canary | https://canary.com/x | ,',
    CORS_HEADERS: '* | X-Canary: 1 | can ary | a\ncanary | ,',
    ALLOWED_HOSTS:
      '* | *.canary.com | https://canary.com | canary.com/ | x@canary | a,can ary | 1.2.3.4.5 | ,',
    LOG_LEVEL: 'canary-level | INFO',
    LOG_ADDRESSES: 'canary | true',
    UPSTREAM_BASE_URL:
      'canary.example.com | file:///canary | https://canary@bots.example.com | https://bots.example.com?canary=1 | https://bots.example.com#canary',
    UPSTREAM_API_KEYS: 'canary key | canary-ü | good,canary\tkey | ,\n,',
    BOTS: 'canary | canary/ | /canary | a/b/canary | canary/.. | ./canary | canary/. | ../canary | a/b,canary | a/can*ary | a/c%20anary | **/canary | , | canary/he\\lper | canary/he lper | ca\tnary/helper',
    FORWARD_QUERY:
      'canary=1 | canary&x | , | custom_channel_id | customChannelId | CUSTOM-CHANNEL.ID | _custom_channel_id_ | custom_channel_id.x | customChannelId. | is_debug,custom_channel_id | bypass_tool_call_consent | bypassToolCallConsent | Bypass-Tool-Call-Consent.x',
    CHANNELS: 'canary | Scoped | owned | scoped,shared',
    CHANNEL_SECRET: `canary-too-short-0123456789 | canary-please-change-me-0123456789-abcdefghij | ${'ab'.repeat(20)}`,
    SERVICE_SECRET: `canary-too-short-0123456789 | canary-please-change-me-0123456789-abcdefghij | ${'ab'.repeat(20)}`,
    SERVICE_HOST: 'canary! | canary host | canary:3000 | https://canary',
    SERVICE_CONSOLE_HOST: 'canary! | canary host | canary:3000 | https://canary',
    SERVICE_CONSOLE_URL: 'canary.example.com | https://canary.example.com/path | ftp://canary',
    SERVICE_MODEL: 'canary | canary/x | openai/ | openai/canary x | voyage/canary',
    SERVICE_ENDPOINT:
      'canary.example.com | ftp://canary | https://canary@example.com | https://a.example/?canary',
    USER_HEADER: `canary header | canary: | ${'canary'.repeat(11)} | X-API-Key | Cookie | Authorization | Host | Connection | Content-Type | Content-Length | Content-Encoding | Transfer-Encoding | TE | Trailer | Upgrade | Expect | Accept | Accept-Encoding | Keep-Alive | Proxy-Authorization | Proxy-Connection | Last-Event-ID | X-Request-Id | Traceparent`,
    CHAT_PAGE: 'canary | On | true | 1',
    CHAT_FILE: '/no/canary',
    RESUME_UPSTREAM: 'canary | On | true | 1',
    END_EVENTS: 'canary | On | true | 1',
    SUSPEND_ON_LEAVE: 'canary | On | true',
    JOIN: 'canary | On | true',
    SESSION_SECRETS: `canary-too-short-0123456789 | ${SECRET_A},canary-too-short | , | ${'1234567'.repeat(6)}`,
    COOKIE_SAME_SITE: 'canary | Strict',
    REDIS_URL:
      'canary | redis:canary | http://canary | redis:// | redis://canary/db | redis://canary?db=1 | redis://:canary%@host | redis://canary, | redis://canary:1,redis://canary:2 | redis://canary:1,other:port',
    REDIS_MODE: 'canary | Cluster | cluster,sentinel',
    AUTH_MODE: 'canary | none',
    OIDC_ISSUER:
      'canary.example.com | http://canary.example.com | http://127.0.0.1.canary.example.com | http://192.0.2.1 | ftp://localhost | https://canary@id.example.com | https://user:canary@id.example.com | https://id.example.com?canary=1 | https://id.example.com#canary | https://canary.example.com/.well-known/openid-configuration',
    OIDC_CLIENT_ID: `canary client | canary-ü | canary${'x'.repeat(256)}`,
    OIDC_CLIENT_SECRET: 'canary secret | canary-ü',
    OPERATIONS: 'canary | message,canary | message chat',
    OIDC_SCOPES: 'canary | profile canary | openid,canary | openidcanary | openid  canary |  openid',
    OIDC_REQUIRED_CLAIM: 'canary | :canary | canary: | canary:  |  :canary | canary:value ',
    OIDC_KEEP_ID_TOKEN: 'canary | True | yes | 1',
    METRICS_PORT: 'canary | http://10.96.12.7',
    KEEP_ALIVE_MS: 'canary | 0',
    MAX_CONNECTIONS: 'canary | 0',
    ...Object.fromEntries(
      WHOLE_NUMBERS.map(([name]) => [
        name,
        'canary | five | -5 | -0 | 5.5 | 1e3 | 0x10 |  5 | 5ms | 12345678901',
      ]),
    ),
  };

  test.each(Object.entries(wrong))('%s=%j', (name, values) => {
    const { [name as 'BOTS']: _replaced, ...others } = PRODUCTION;
    for (const value of values.split(' | ')) {
      const problems = problemsOf({ ...others, [name]: value });
      expect([value, problems.length > 0]).toEqual([value, true]);
      for (const problem of problems) {
        expect(problem).toMatch(new RegExp(`^${name} \\w`));
        expect(problem).not.toMatch(/canary/i);
      }
    }
  });

  test('every variable with its own format is in this table', () => {
    const free = ['BOTS_FILE', 'USERS_FILE', 'CHANNEL_REALM', 'SERVICE_DATA'];
    // The keys of providers are read with SERVICE_MODEL alone.
    const names = Object.keys(VARIABLES).filter((name) => !free.includes(name) && !isModelKey(name));
    // redis-settings.test.ts has those of TLS and Sentinel.
    const here = names.filter((name) => !/^REDIS_(TLS|SENTINEL)_/.test(name));
    expect(here.sort()).toEqual(Object.keys(wrong).sort());
  });

  test.each(Object.entries(MODEL_KEYS))('the key of %s, in %s', (kind, name) => {
    const SERVICE_ENDPOINT = 'https://models.example.com/v1';
    const problems = problemsOf({ SERVICE_MODEL: `${kind}/x`, SERVICE_ENDPOINT, [name]: 'canary key' });
    expect(problems).toEqual([expect.stringMatching(`^${name} holds`)]);
    expect(problems.join()).not.toContain('canary');
  });

  test('a header for the user has no more than 64 characters, and may be named like others', () => {
    for (const userHeader of ['X-User', 'Teacher', 'X-Expect', 'Hostess', 'x'.repeat(64)])
      expect(loadConfig({ USER_HEADER: userHeader })).toMatchObject({ upstream: { userHeader } });
    expect(problemsOf({ USER_HEADER: 'x'.repeat(65) })).toHaveLength(1);
  });
});

test.each([
  ['PORT', true],
  ['UPSTREAM_API_KEYS', true],
  ['UPSTREAM_API_KEYS_FILE', true],
  ['BOTS_FILE', true],
  ['PORT_FILE', false],
  ['UPSTREAM_API_KEY', false],
  ['toString', false],
])('%s is a variable of the relay: %s', (name, known) => {
  expect(isVariable(name)).toBe(known);
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
      expect(of({ MAX_CONNECTIONS: '9', TRUST_PROXY }).mostOfAddress).toBe(Number.POSITIVE_INFINITY);
  });
});
