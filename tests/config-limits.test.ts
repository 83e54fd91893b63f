import { randomBytes } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { type Config, type ConfigError, loadConfig } from '../src/config/config.ts';
import { risksOf } from '../src/config/risks.ts';
import { isVariable } from '../src/config/variables.ts';

const SERVICE = {
  UPSTREAM_BASE_URL: 'https://bots.example.com',
  UPSTREAM_API_KEYS: 'key',
  BOTS: 'acme/helper',
};

/** The configuration, or the names of the invalid variables. */
function load(environment: Record<string, string>): Config | string[] {
  try {
    return loadConfig({ ...SERVICE, ...environment });
  } catch (error) {
    return (error as ConfigError).problems.map((problem) => problem.split(' ', 1)[0] as string);
  }
}

describe('guests', () => {
  const risk = expect.stringMatching(/^TRUST_PROXY is not set with AUTH_MODE=guest: all guests share/);
  const risksWith = (environment: Record<string, string>) =>
    risksOf(
      loadConfig({
        ...SERVICE,
        NODE_ENV: 'production',
        PUBLIC_URL: 'https://chat.example.com',
        SESSION_SECRETS: randomBytes(32).toString('base64'),
        CHANNEL_SECRET: randomBytes(32).toString('base64'),
        AUTH_MODE: 'guest',
        ...environment,
      }),
    );

  test('are a risk in production without TRUST_PROXY', () => {
    expect(risksWith({})).toContainEqual(risk);
    expect(risksWith({ PUBLIC_URL: 'http://chat.example.com' })).toContainEqual(risk);
    expect(risksWith({ TRUST_PROXY: '1' })).not.toContainEqual(risk);
    expect(risksWith({ NODE_ENV: 'development' })).not.toContainEqual(risk);
    expect(risksWith({ AUTH_MODE: 'password' })).not.toContainEqual(risk);
  });
});

describe('USER_HEADER', () => {
  test.each([
    ...['X-API-Key', 'Cookie', 'Authorization', 'Host', 'Connection', 'Content-Type', 'Content-Length'],
    ...['Content-Encoding', 'Transfer-Encoding', 'TE', 'Trailer', 'Upgrade', 'Expect', 'Accept'],
    ...['Accept-Encoding', 'Keep-Alive', 'Proxy-Authorization', 'Proxy-Connection', 'Last-Event-ID'],
    ...['X-Request-Id', 'Traceparent', 'x'.repeat(65)],
  ])('cannot be %s', (name) => {
    expect(load({ USER_HEADER: name })).toEqual(['USER_HEADER']);
  });

  test.each(['X-User', 'Teacher', 'X-Expect', 'Hostess', 'x'.repeat(64)])('can be %s', (name) => {
    expect(load({ USER_HEADER: name })).toMatchObject({ upstream: { userHeader: name } });
  });
});

describe('a session secret', () => {
  const filled = (text: string) => text.padEnd(40, '0123456789abcdef');

  test.each([
    'change-me',
    'ChangeMe',
    'EXAMPLE',
    'sample',
    'replace',
    'your secret',
    'your-secret',
    'placeholder',
  ])('cannot hold %j', (word) => {
    expect(load({ SESSION_SECRETS: filled(word) })).toEqual(['SESSION_SECRETS']);
  });

  test('has at least eight different characters', () => {
    expect(load({ SESSION_SECRETS: '1234567'.repeat(6) })).toEqual(['SESSION_SECRETS']);
    expect(load({ SESSION_SECRETS: '12345678'.repeat(6) })).toMatchObject({ session: { idleMs: 1_800_000 } });
  });
});

describe('the longest name', () => {
  const host = (length: number) => `${'abcdefg.'.repeat(40)}`.slice(0, length - 1).concat('z');

  test('of a host has 253 characters', () => {
    expect(load({ HOST: host(253) })).toMatchObject({ host: host(253) });
    expect(load({ HOST: host(254) })).toEqual(['HOST']);
  });
});

test.each(['acme/he\\lper', 'acme/he lper', 'ac\tme/helper'])('BOTS cannot hold %j', (bot) => {
  expect(load({ BOTS: bot })).toEqual(['BOTS']);
});

test('REDIS_URL can use TLS', () => {
  const SECRET = '0123456789abcdefghijklmnopqrstuv';
  const config = load({
    REDIS_URL: 'rediss://user:word@cache.example.com:6380/1',
    SESSION_SECRETS: SECRET,
    CHANNEL_SECRET: `${SECRET}-other`,
  }) as Config;
  expect(config.redis?.url.open()).toBe('rediss://user:word@cache.example.com:6380/1');
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
