import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, jest, test } from '@jest/globals';
import { cannotListen } from '../../src/process/cannot-listen.ts';
import { call } from '../harness/clients/call.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { runCommand, stopCommands } from '../harness/relay/commands.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { samplesOf } from '../harness/relay/metric-samples.ts';
import { freshFolder, inFrontOf, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer } from '../harness/service/raw-upstream.ts';

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

describe('the configuration of a process', () => {
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

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
/** With this environment, no relay starts. */
const NOWHERE = { PORT: 'none', UPSTREAM_BASE_URL: 'none' };

/** Each command has its own usage, or none. The flag may follow other arguments. */
const USAGES: [string[], RegExp][] = [
  [['--help'], /^Usage: bot-relay +run the relay\n[\s\S]*--help[\s\S]*--version/],
  [['--check-config', '-h'], /^Usage: bot-relay +run the relay\n/],
  [['user', '-h'], /^Usage: bot-relay user add NAME/],
  [['user', 'add', '--help'], /^Usage: bot-relay user add NAME/],
  [['keys', '--json', '-h'], /^Usage: bot-relay keys/],
  [['channel-id', '--user', 'ada', '-h'], /^Usage: bot-relay channel-id --user USER --id ID/],
  [['check', '--no-messages', '--help'], /^Usage: bot-relay check \[options\]/],
  [['service', '-h'], /^Usage: bot-relay service \[--keys-file FILE\]/],
  [['service', 'keys', 'delete', 'x', '--help'], /^Usage: bot-relay service \[--keys-file FILE\]/],
];
/** The version is the same for all commands. */
const VERSIONS = [['--version'], ['-v'], ['--check-config', '-v'], ['check', '--no-messages', '--version']];

/** The output of a command that must exit with 0, whatever its configuration. */
async function printed(args: string[]): Promise<string> {
  const { stdout, ...others } = await runCommand({ args, environment: NOWHERE });
  expect(others).toEqual({ code: 0, stderr: '' });
  return stdout;
}

async function startsNothing(): Promise<void> {
  const relay = startProcess({ args: ['--version'], environment: NOWHERE });
  expect(await relay.exited).toEqual({ code: 0, signal: null });
  expect(relay.stdout() + relay.stderr()).toBe(`${version}\n`);
}

describe('on standard output', () => {
  testSideBySide(
    [
      ...USAGES.map(([args, usage]): [string, () => Promise<void>] => [
        `${JSON.stringify(args)} prints the usage`,
        async () => expect(await printed(args)).toMatch(usage),
      ]),
      ...VERSIONS.map((args): [string, () => Promise<void>] => [
        `${JSON.stringify(args)} prints the version`,
        async () => expect(await printed(args)).toBe(`${version}\n`),
      ]),
      ['a process prints the version, and ends', startsNothing],
    ],
    3,
  );
});

test('the log and the metrics tell the version of package.json and the commit of the build', async () => {
  const revision = readFileSync(join(ROOT, 'dist/revision.txt'), 'utf8').trim();
  const metricsPort = await freePort();
  const relay = startProcess({ environment: { PORT: '0', METRICS_PORT: String(metricsPort) } });
  await relay.listening();
  const line = /^\{.*"msg":"listening".*$/m.exec(relay.stdout())?.[0] ?? '';
  expect(JSON.parse(line)).toMatchObject({
    version,
    revision: expect.stringMatching(/^([0-9a-f]{12}|unknown)$/),
  });
  const { body } = await call(metricsPort, '/metrics');
  const [sample] = samplesOf(body).filter(({ name }) => name === 'bot_relay_build_info');
  expect(sample).toMatchObject({ labels: { version, revision }, value: 1 });
});

const CONFIGURED = inFrontOf('http://127.0.0.1:9');

/** What `channel-id` prints and exits with. */
const channelId = (args: readonly string[], environment: Record<string, string> = CONFIGURED) =>
  runCommand({ args: ['channel-id', ...args], environment });

/** The id that the bot service gets with a message of a user to the conversation `id`. */
async function sentId(id: string, environment: Record<string, string>): Promise<string> {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(plainAnswer('400 No', [])),
    environment,
  );
  try {
    await call(pair.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
      method: 'POST',
      headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
      body: JSON.stringify({ customChannelId: id, text: 'hi' }),
    });
    return (JSON.parse(String(pair.upstream.requests[0]?.body)) as { customChannelId: string })
      .customChannelId;
  } finally {
    await pair.close();
  }
}

async function printsWhatIsSent(id: string, more: Record<string, string> = {}): Promise<void> {
  const sent = await sentId(id, more);
  expect(sent).toMatch(/^[0-9a-f]{64}$/);
  const args = ['--user', 'ada', `--id=${id}`];
  expect(await channelId(args, { ...CONFIGURED, ...more })).toEqual({
    code: 0,
    stdout: `${sent}\n`,
    stderr: '',
  });
}

async function refuses(environment: Record<string, string>, reason: RegExp): Promise<void> {
  expect(await channelId(['--user', 'ada', '--id', 'c1'], environment)).toEqual({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(reason),
  });
}

const { CHANNEL_SECRET: _left, ...withoutSecret } = CONFIGURED;

const WRONG_ARGUMENTS = [
  [],
  ['--user', 'ada'],
  ['--user', 'ada', '--id', ''],
  ['--user=', '--id', 'c1'],
  ['--user', 'ada', '--id', 'x'.repeat(257)],
  ['--user', 'ada', '--id', 'c1', 'more'],
  ['--user', 'ada', '--id', 'c1', '--realm', 'staff'],
];

describe('channel-id', () => {
  testSideBySide(
    [
      ['prints the id that a message carries to the bot service', () => printsWhatIsSent('my "öne"')],
      ['uses CHANNEL_REALM as the relay does', () => printsWhatIsSent('-c1', { CHANNEL_REALM: 'staff' })],
      [
        'says in one sentence that ids pass as they are with CHANNELS=shared, and exits 1',
        () => refuses({ ...CONFIGURED, CHANNELS: 'shared' }, /^CHANNELS is shared: [^.]* as they are\.\n$/),
      ],
      [
        'prints no id of a random secret, and exits 1',
        () => refuses(withoutSecret, /^CHANNEL_SECRET is not set: [^.]*\.\n$/),
      ],
      ...WRONG_ARGUMENTS.map((args): [string, () => Promise<void>] => [
        `prints its usage and exits 64 with ${JSON.stringify(args)}, whatever the configuration`,
        async () =>
          expect(await channelId(args, { PORT: 'none' })).toEqual({
            code: 64,
            stdout: '',
            stderr: expect.stringMatching(/^Usage: bot-relay channel-id /),
          }),
      ]),
      [
        'exits 78 with a wrong configuration',
        async () =>
          expect(await channelId(['--user', 'ada', '--id', 'c1'], { PORT: 'none' })).toMatchObject({
            code: 78,
            stdout: '',
          }),
      ],
    ],
    3,
  );
});

const DIST = fileURLToPath(new URL('../../dist/', import.meta.url));
const THIS = process.versions.node;
const [MAJOR = 0, MINOR = 0, PATCH = 0] = THIS.split('.').map(Number);

/** A Node.js of this machine that is older than the relay needs. */
const old = (process.env.PATH ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'node'))
  .find((node) => {
    const { stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
    return /^v(1[4-9]|2[01])\./.test(stdout ?? '');
  });
if (!old)
  process.stderr.write('The test with an old Node.js is left out; to run it: put Node.js 20 in PATH\n');

/** Runs the built `main.js` alone, without the rest of the relay, with `range` as its `engines`. */
function runAsking(range: string) {
  const folder = freshFolder({
    'package.json': JSON.stringify({ type: 'module', engines: { node: range } }),
  });
  mkdirSync(join(folder, 'dist'));
  copyFileSync(join(DIST, 'main.js'), join(folder, 'dist', 'main.js'));
  return spawnSync(process.execPath, [join(folder, 'dist', 'main.js')], { encoding: 'utf8' });
}

describe('a Node.js that the relay does not run on', () => {
  test.each([
    `>=${MAJOR + 1}`,
    `>=${MAJOR}.${MINOR + 1}`,
    `>=${MAJOR}.${MINOR}.${PATCH + 1}`,
    `^${MAJOR - 2}.0.0 || ^${MAJOR - 1}.1.0 || >=${MAJOR + 2}.0.0`,
    `^${MAJOR}.${MINOR + 1}.0 || >=${MAJOR + 2}.0.0`,
  ])('is refused with its version and the right one (%s), before any other module is loaded', (range) => {
    const { status, stdout, stderr } = runAsking(range);
    expect(stderr).toBe(
      `bot-relay runs on Node.js ${range}, and this is Node.js ${THIS} (${process.execPath}); in a checkout, npx bot-relay and the npm scripts run on the Node.js that npm install has brought.\n`,
    );
    expect(stdout).toBe('');
    expect(status).toBe(78);
  });

  // An old Node.js may fail to parse the program, which the cases above cannot show.
  if (old) {
    test('is refused if it is old', () => {
      const { status, stderr } = spawnSync(old, [join(DIST, 'main.js')], { encoding: 'utf8' });
      const version = execFileSync(old, ['-p', 'process.versions.node'], { encoding: 'utf8' }).trim();
      expect(stderr).toMatch(/^bot-relay runs on Node\.js [^\n]+\n$/);
      expect(stderr).toContain(`this is Node.js ${version} (`);
      expect(status).toBe(78);
    });
  }
});

describe('a Node.js that the relay runs on', () => {
  test.each([
    `>=${MAJOR - 1}.99`,
    `>= ${MAJOR}.${MINOR}.${PATCH}`,
    `^${MAJOR - 2}.0.0 || ^${MAJOR}.0.0 || >=${MAJOR + 2}.0.0`,
    `^${MAJOR}.${MINOR}.${PATCH}`,
  ])('loads the other modules (%s)', (range) => {
    const { stderr } = runAsking(range);
    // The module does not exist here.
    expect(stderr).toContain('ERR_MODULE_NOT_FOUND');
    expect(stderr).toContain('commands/run-command.js');
  });
});
