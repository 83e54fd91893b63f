import { createServer } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { freshFolder, startProcess, stopProcesses } from '../support/process.ts';
import { CANARY } from '../support/relay.ts';

const UPSTREAM = {
  UPSTREAM_BASE_URL: 'http://127.0.0.1:9',
  UPSTREAM_API_KEYS: CANARY.key,
  BOTS: 'acme/helper',
  SESSION_SECRETS: CANARY.sessionSecret,
};
const WRONG = {
  ...UPSTREAM,
  NODE_ENV: 'production',
  PORT: 'canary-port',
  RATE_LIMIT: 'five',
  SESSION_SECRETS: 'canary-short',
};
const WRONG_LINES = [
  'The configuration has 4 problem(s):',
  '  - PORT must be a whole number from 0 to 65535',
  '  - RATE_LIMIT must be a whole number from 1 to 1000000',
  '  - SESSION_SECRETS holds a secret of fewer than 32 characters',
  '  - PUBLIC_URL must be set in production',
  '',
];

afterEach(() => stopProcesses(['canary-port', 'canary-short']));

describe('a process with a wrong configuration', () => {
  test.each([[[]], [['--check-config']]])(
    'says all that is wrong on standard error and exits 78 before it listens: %j (O6)',
    async (args) => {
      const relay = startProcess({ args, environment: WRONG });
      expect(await relay.exited).toEqual({ code: 78, signal: null });
      expect(relay.stderr().split('\n')).toEqual(WRONG_LINES);
      expect(relay.stdout()).toBe('');
    },
  );

  test.each([[[]], [['--check-config']]])('exits 78 when there is no users file: %j (O6)', async (args) => {
    const relay = startProcess({ args, environment: { ...UPSTREAM, USERS_FILE: 'missing.json' } });
    expect(await relay.exited).toEqual({ code: 78, signal: null });
    expect(relay.stderr()).toMatch(
      /^USERS_FILE: missing\.json .*does not exist.*npm run user -- add NAME\n$/,
    );
    expect(relay.stdout()).toBe('');
  });

  test('exits 78 when the users file is none, and shows nothing of it (O6)', async () => {
    const folder = freshFolder({ 'users.json': `{"users":[{"name":"ada","hash":"${CANARY.password}"}]}` });
    const relay = startProcess({ folder, environment: UPSTREAM });
    expect(await relay.exited).toEqual({ code: 78, signal: null });
    expect(relay.stderr()).toMatch(/^USERS_FILE: users\.json cannot be used: [^\n]+\n$/);
  });
});

describe('--check-config', () => {
  test('exits 0 with a good configuration, and does not listen', async () => {
    const folder = freshFolder({ 'users.json': '{"users":[]}' });
    const relay = startProcess({ folder, args: ['--check-config'], environment: UPSTREAM });
    expect(await relay.exited).toEqual({ code: 0, signal: null });
    expect(relay.stdout()).toBe(
      'The configuration is good.\nRisk: PUBLIC_URL is not https: session cookies are not Secure\n',
    );
    expect(relay.stderr()).toBe('');
  });

  test('names each risk, and none where there is none', async () => {
    const folder = freshFolder({ 'users.json': '{"users":[]}' });
    const lines = async (environment: Record<string, string>) => {
      const relay = startProcess({
        folder,
        args: ['--check-config'],
        environment: { ...UPSTREAM, NODE_ENV: 'production', ...environment },
      });
      expect(await relay.exited).toEqual({ code: 0, signal: null });
      return relay.stdout().split('\n');
    };
    expect(await lines({ PUBLIC_URL: 'http://chat.example.com' })).toEqual([
      'The configuration is good.',
      expect.stringMatching(/^Risk: REDIS_URL /),
      expect.stringMatching(/^Risk: PUBLIC_URL is not https/),
      expect.stringMatching(/^Risk: TRUST_PROXY is not set/),
      '',
    ]);
    const careful = { TRUST_PROXY: '1', REDIS_URL: 'redis://127.0.0.1:9' };
    expect(await lines({ PUBLIC_URL: 'https://chat.example.com', ...careful })).toEqual([
      'The configuration is good.',
      '',
    ]);
  });
});

describe('a process with wrong arguments', () => {
  test.each([[['--check-confg']], [['start']], [['--check-config', 'more']]])(
    'says how to use it and exits 64: %j',
    async (args) => {
      const relay = startProcess({ args, environment: WRONG });
      expect(await relay.exited).toEqual({ code: 64, signal: null });
      expect(relay.stderr()).toMatch(/^Usage: node dist\/main\.js /);
      expect(relay.stdout()).toBe('');
    },
  );
});

describe('a process whose port is taken', () => {
  test('says so in one line and exits 1', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    const relay = startProcess({ environment: { PORT: String(port) } });
    expect(await relay.exited).toEqual({ code: 1, signal: null });
    expect(relay.stderr()).toBe(
      `The relay cannot listen on HOST and PORT: listen EADDRINUSE: address already in use 127.0.0.1:${port}; set PORT to another\n`,
    );
    expect(relay.stdout()).toBe('');
    await new Promise((resolve) => other.close(resolve));
  });

  test('is not told to take another where it is the address that cannot be had', async () => {
    const relay = startProcess({ environment: { HOST: '192.0.2.1' } });
    expect(await relay.exited).toEqual({ code: 1, signal: null });
    expect(relay.stderr()).toMatch(/^The relay cannot listen on HOST and PORT: listen EADDRNOTAVAIL[^;]*\n$/);
  });
});
