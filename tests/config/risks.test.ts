import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from '@jest/globals';
import { checkConfiguration } from '../../src/check/check-configuration.ts';
import { CheckReport } from '../../src/check/report.ts';
import { loadConfig } from '../../src/config/config.ts';
import { risksOf } from '../../src/config/risks.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

/** An environment without risks. */
const CAREFUL = {
  NODE_ENV: 'production',
  PUBLIC_URL: 'https://chat.example.com',
  TRUST_PROXY: '1',
  UPSTREAM_BASE_URL: 'https://bots.example.com',
  UPSTREAM_API_KEYS: CANARY.key,
  BOTS: 'acme/helper',
  SESSION_SECRETS: CANARY.sessionSecret,
  CHANNEL_SECRET: CANARY.channelSecret,
  REDIS_URL: 'rediss://:canary-word@redis.example.com',
};
const GUEST = { AUTH_MODE: 'guest' };
const HTTP = { PUBLIC_URL: 'http://chat.example.com' };

const risks = (environment: Record<string, string>) => risksOf(loadConfig({ ...CAREFUL, ...environment }));

afterEach(() => stopProcesses(['canary-word']));

describe('a careful configuration', () => {
  test.each([
    [{}],
    [GUEST],
    [{ TRUST_PROXY: '0' }],
    [{ TRUST_PROXY: '10.0.0.0/8' }],
    [{ ALLOWED_ORIGINS: 'https://www.example.com' }],
    [{ COOKIE_SAME_SITE: 'none' }],
    [{ ...GUEST, GUESTS_PER_ADDRESS: '1', CLIENT_LIMIT_PER_ADDRESS: '1', CLIENT_LIMIT_PER_SESSION: '1' }],
    // Limits of guests do not matter without guests.
    [{ GUESTS_PER_ADDRESS: '0', CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' }],
    [{ UPSTREAM_BASE_URL: 'http://localhost:1' }],
    [{ UPSTREAM_BASE_URL: 'http://127.0.0.1:1' }],
    [{ UPSTREAM_BASE_URL: 'http://[::1]:1' }],
    [{ REDIS_URL: 'redis://localhost' }],
    [{ REDIS_URL: 'redis://127.0.0.1:6379/1' }],
    [{ REDIS_URL: 'redis://[::1]' }],
    [{ REDIS_URL: 'rediss://user:canary-word@[2001:db8::1]' }],
    [{ MAX_EXECUTION_MS: '180000', SHUTDOWN_GRACE_MS: '180000' }],
    [{ MAX_EXECUTION_MS: '1000', SHUTDOWN_GRACE_MS: '1000' }],
    [{ CHANNELS: 'scoped', CHANNEL_REALM: 'staff' }],
  ])('with %j has no risk', (environment) => {
    expect(risks(environment)).toEqual([]);
  });
});

test('a limit of open files that is too low for one bot, or for MAX_CONNECTIONS, is a risk', () => {
  const config = loadConfig(CAREFUL);
  const withFiles = (openFiles: number, more: object = {}) =>
    risksOf({ ...config, connections: { ...config.connections, openFiles, ...more } });
  // 5 messages a second of 180 s.
  expect(withFiles(2 * 900 + 256)).toEqual([]);
  expect(withFiles(2 * 900 + 255)).toEqual([
    expect.stringMatching(
      /^the limit of open files is 2055, and one bot at its highest rate needs 2056: .*; raise it/,
    ),
  ]);
  expect(withFiles(2055, { isSet: true, most: 899 })).toEqual([]);
  expect(withFiles(2055, { isSet: true, most: 900 })).toEqual([
    expect.stringMatching(/^the limit of open files is 2055, and MAX_CONNECTIONS needs 2056: .*; raise it/),
  ]);
});

const CASES: [environment: Record<string, string>, ...risks: RegExp[]][] = [
  [{ TRUST_PROXY: '' }, /^TRUST_PROXY is not set: .*; set it to /],
  [
    { ...GUEST, TRUST_PROXY: '' },
    /^TRUST_PROXY is not set: /,
    /^TRUST_PROXY is not set with AUTH_MODE=guest: all guests share/,
  ],
  [HTTP, /^PUBLIC_URL is not https: /],
  [{ ...HTTP, TRUST_PROXY: '' }, /^PUBLIC_URL is not https: /, /^TRUST_PROXY is not set: .*; set it to /],
  [{ PUBLIC_URL: 'http://localhost:3000', TRUST_PROXY: '' }, /^PUBLIC_URL is not https: /],
  [{ PUBLIC_URL: 'https://localhost', TRUST_PROXY: '' }, /^TRUST_PROXY is not set: /],
  [
    { ALLOWED_ORIGINS: 'https://other.example', COOKIE_SAME_SITE: 'none' },
    /^ALLOWED_ORIGINS with COOKIE_SAME_SITE=none: .*; allow only /,
  ],
  [{ ...GUEST, GUESTS_PER_ADDRESS: '0' }, /^GUESTS_PER_ADDRESS 0 with AUTH_MODE=guest: .*; set /],
  [{ ...GUEST, CLIENT_LIMIT_PER_ADDRESS: '0' }, /^CLIENT_LIMIT_PER_ADDRESS 0 with AUTH_MODE=guest: .*; set /],
  [
    { ...GUEST, GUESTS_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' },
    /^GUESTS_PER_ADDRESS and CLIENT_LIMIT_PER_SESSION 0 with AUTH_MODE=guest: /,
  ],
  [{ REDIS_URL: '' }, /^REDIS_URL is not set: /],
  [{ REDIS_URL: 'rediss://redis.example.com' }, /^REDIS_URL has no password: .*; set /],
  [{ REDIS_URL: 'rediss://user@redis.example.com' }, /^REDIS_URL has no password: /],
  [{ REDIS_URL: 'redis://:canary-word@redis.example.com' }, /^REDIS_URL is not rediss:.*: .*; use /],
  [{ REDIS_URL: 'redis://redis:6379' }, /^REDIS_URL has no password: /, /^REDIS_URL is not rediss:/],
  [{ UPSTREAM_BASE_URL: 'http://bots.example.com' }, /^UPSTREAM_BASE_URL is not https: /],
  [
    { MAX_EXECUTION_MS: '180001', SHUTDOWN_GRACE_MS: '200000' },
    /^MAX_EXECUTION_MS is above 180000: .*; set it to /,
  ],
  [{ SHUTDOWN_GRACE_MS: '179999' }, /^SHUTDOWN_GRACE_MS is less than MAX_EXECUTION_MS: .*; set it to /],
  [{ NODE_ENV: '', REDIS_URL: '', CHANNEL_SECRET: '' }, /^CHANNEL_SECRET is not set: .*; set it$/],
  [{ CHANNELS: 'shared' }, /^CHANNELS is shared: .*; set it to scoped$/],
  [{ OPERATIONS: 'files' }, /^OPERATIONS without message: .*; add message$/],
  [{ OPERATIONS: 'message,metadata' }, /^OPERATIONS with metadata: every user .*; take it out /],
  // A secret that is set, or not, changes nothing of the risk.
  [{ CHANNELS: 'shared', CHANNEL_SECRET: '' }, /^CHANNELS is shared: /],
];

describe('a configuration', () => {
  test.each(CASES)('with %j has its risks and no others', (environment, ...expected) => {
    expect(risks(environment)).toEqual(expected.map((risk) => expect.stringMatching(risk)));
  });

  test('of the demo has no risks', () => {
    const { COOKIE_SAME_SITE: _needsHttps, ...all } = Object.assign({}, ...CASES.map(([one]) => one));
    const demo = { ...all, ...GUEST, REDIS_URL: 'redis://redis', SESSION_SECRETS: CANARY.sessionSecret };
    expect(risksOf(loadConfig({ ...demo, UPSTREAM_BASE_URL: '' }))).toEqual([]);
  });
});

test('the operations of one bot have the same risks', () => {
  const folder = mkdtempSync(join(tmpdir(), 'risks-'));
  const BOTS_FILE = join(folder, 'bots.json');
  writeFileSync(BOTS_FILE, JSON.stringify({ 'acme/helper': { operations: ['files', 'metadata'] } }));
  expect(risks({ BOTS_FILE })).toEqual([
    expect.stringMatching(/^operations of acme\/helper in BOTS_FILE without message: /),
    expect.stringMatching(/^operations of acme\/helper in BOTS_FILE with metadata: /),
  ]);
  rmSync(folder, { recursive: true });
});

const dangerous = {
  ...CAREFUL,
  ...GUEST,
  TRUST_PROXY: '',
  ALLOWED_ORIGINS: 'https://other.example',
  COOKIE_SAME_SITE: 'none',
  GUESTS_PER_ADDRESS: '0',
  REDIS_URL: 'redis://user@redis.example.com',
  MAX_EXECUTION_MS: '200000',
  CHANNELS: 'shared',
};

describe('--check-config', () => {
  test('prints every risk in plain words, and no value', async () => {
    const relay = startProcess({ args: ['--check-config'], environment: dangerous });
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    const expected = risksOf(loadConfig(dangerous));
    expect(expected).toHaveLength(9);
    expect(relay.stdout().split('\n')).toEqual([
      'The configuration is good.',
      ...expected.map((risk) => `Risk: ${risk}`),
      '',
    ]);
    expect(relay.stdout()).not.toMatch(/other\.example|redis\.example/);
  });
});

describe('the check of a deployment', () => {
  test('notes every risk, except a missing Redis, which another row reports', () => {
    const notesOf = (environment: Record<string, string>) => {
      const report = new CheckReport();
      checkConfiguration(loadConfig(environment), {}, report);
      return report.findings.filter(({ state }) => state === 'note').map(({ says }) => says);
    };
    expect(notesOf(dangerous)).toEqual(risksOf(loadConfig(dangerous)));
    expect(notesOf(dangerous).filter((says) => says.startsWith('REDIS_URL'))).toHaveLength(2);
    expect(notesOf({ ...CAREFUL, ...GUEST, REDIS_URL: '' })).toEqual([]);
  });
});
