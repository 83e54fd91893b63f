import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, describe, expect, jest } from '@jest/globals';
import { cannotListen } from '../../src/process/cannot-listen.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const UPSTREAM = {
  UPSTREAM_BASE_URL: 'http://127.0.0.1:9',
  UPSTREAM_API_KEYS: CANARY.key,
  BOTS: 'acme/helper',
  SESSION_SECRETS: CANARY.sessionSecret,
  CHANNEL_SECRET: CANARY.channelSecret,
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

afterAll(async () => {
  await stopCommands();
  await stopProcesses(['canary-port', 'canary-short']);
});

const USERS = { 'users.json': '{"users":[]}' };
const CHECK = ['--check-config'];

async function saysAll(): Promise<void> {
  const relay = startProcess({ environment: WRONG });
  expect(await relay.exited).toEqual({ code: 78, signal: null });
  expect(relay.stderr().split('\n')).toEqual(WRONG_LINES);
  expect(relay.stdout()).toBe('');
}

async function saysAllInCheck(): Promise<void> {
  const ran = await runCommand({ args: CHECK, environment: WRONG });
  expect(ran).toEqual({ code: 78, stdout: '', stderr: WRONG_LINES.join('\n') });
}

async function missesUsers(args: string[]): Promise<void> {
  const ran = await runCommand({ args, environment: { ...UPSTREAM, USERS_FILE: 'missing.json' } });
  expect(ran).toEqual({
    code: 78,
    stdout: '',
    stderr: expect.stringMatching(
      /^USERS_FILE: missing\.json .*does not exist.*npx bot-relay user add NAME\n$/,
    ),
  });
}

async function invalidUsers(): Promise<void> {
  const folder = freshFolder({ 'users.json': `{"users":[{"name":"ada","hash":"${CANARY.password}"}]}` });
  expect(await runCommand({ folder, environment: UPSTREAM })).toMatchObject({
    code: 78,
    stderr: expect.stringMatching(/^USERS_FILE: users\.json cannot be used: [^\n]+\n$/),
  });
}

/** What `--check-config` prints for a valid configuration. */
async function checked(more: Record<string, string> = {}): Promise<string[]> {
  const environment = { ...UPSTREAM, ...more };
  const { stdout, ...others } = await runCommand({ folder: freshFolder(USERS), args: CHECK, environment });
  expect(others).toEqual({ code: 0, stderr: '' });
  return stdout.split('\n');
}

async function namesRisks(): Promise<void> {
  const NODE_ENV = 'production';
  expect(await checked({ NODE_ENV, PUBLIC_URL: 'http://chat.example.com' })).toEqual([
    'The configuration is good.',
    expect.stringMatching(/^Risk: REDIS_URL /),
    expect.stringMatching(/^Risk: PUBLIC_URL is not https/),
    expect.stringMatching(/^Risk: TRUST_PROXY is not set/),
    '',
  ]);
}

async function namesNoRisk(): Promise<void> {
  const careful = { NODE_ENV: 'production', TRUST_PROXY: '1', REDIS_URL: 'redis://127.0.0.1:9' };
  expect(await checked({ PUBLIC_URL: 'https://chat.example.com', ...careful })).toEqual([
    'The configuration is good.',
    '',
  ]);
}

async function printsUsage(args: string[]): Promise<void> {
  expect(await runCommand({ args, environment: WRONG })).toEqual({
    code: 64,
    stdout: '',
    stderr: expect.stringMatching(/^Usage: bot-relay /),
  });
}

async function portTaken(variable: string): Promise<void> {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as { port: number };
  const relay = startProcess({ environment: { PORT: '0', [variable]: String(port) } });
  expect(await relay.exited).toEqual({ code: 1, signal: null });
  expect(relay.stderr()).toBe(
    `The relay cannot listen on HOST and ${variable}: listen EADDRINUSE: address already in use 127.0.0.1:${port}; set ${variable} to another\n`,
  );
  expect(relay.stdout()).not.toContain('"msg":"listening"');
  await new Promise((resolve) => other.close(resolve));
}

async function addressOfAnother(): Promise<void> {
  const [error] = await once(createServer().listen(0, '192.0.2.1'), 'error');
  const exit = jest.spyOn(process, 'exit').mockReturnValue(undefined as never);
  const write = jest.spyOn(process.stderr, 'write').mockReturnValue(true);
  cannotListen('PORT')(error);
  const printed = write.mock.calls.map(([text]) => text);
  const codes = exit.mock.calls.map(([code]) => code);
  jest.restoreAllMocks();
  expect(printed).toEqual([
    expect.stringMatching(/^The relay cannot listen on HOST and PORT: listen EADDRNOTAVAIL[^;]*\n$/),
  ]);
  expect(codes).toEqual([1]);
}

describe('a process', () => {
  testSideBySide(
    [
      ['says all that is wrong on standard error and exits 78 before it listens', saysAll],
      ['says the same with --check-config', saysAllInCheck],
      ['exits 78 when there is no users file', () => missesUsers([])],
      ['exits 78 when there is no users file, with --check-config', () => missesUsers(CHECK)],
      ['exits 78 when the users file is invalid, and prints nothing of it', invalidUsers],
      ['names each risk of its configuration with --check-config', namesRisks],
      ['names no risk of a careful configuration', namesNoRisk],
      ['prints the usage and exits 64 with a misspelt argument', () => printsUsage(['--check-confg'])],
      ['does the same with one argument too many', () => printsUsage(['--check-config', 'more'])],
      ['says in one line that its port is taken, and exits 1', () => portTaken('PORT')],
      ['says the same of the port of its metrics', () => portTaken('METRICS_PORT')],
      ['does not suggest another port if the address is the problem', addressOfAnother],
    ],
    3,
  );
});
