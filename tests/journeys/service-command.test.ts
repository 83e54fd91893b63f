import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { verifyPassword } from '../../src/authenticate/password/password-hash.ts';
import { secret } from '../../src/secret.ts';
import { startBotService } from '../../src/service/bot-service.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import { sealer } from '../../src/service/settings/sealed.ts';
import { DEMO, openSettings, PASSWORD_HASH, type Settings } from '../../src/service/settings/settings.ts';
import { call } from '../harness/clients/call.ts';
import { type Ran, runCommand, stopCommands } from '../harness/relay/commands.ts';
import { deployRelays, stopDeployments } from '../harness/relay/key-deployment.ts';
import { freshFolder, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';

const SECRET = 'a-secret-of-the-service-0123456789-XYZ';
/** Only what concerns the service needs to be good: where it runs alone, there is nothing for a relay. */
const ENVIRONMENT = {
  NODE_ENV: 'production',
  PORT: 'none',
  SERVICE_DATA: 'service.db',
  SERVICE_SECRET: SECRET,
};
const LISTENING = { ...ENVIRONMENT, SERVICE_PORT: '0', SERVICE_CONSOLE_PORT: '0' };

afterAll(async () => {
  await stopCommands();
  await stopDeployments();
  await stopProcesses();
});

const database = (folder: string) => ({ path: join(folder, 'service.db'), secret: secret(SECRET) });
const service = (folder: string, ...args: string[]) =>
  runCommand({ args: ['service', ...args], folder, environment: ENVIRONMENT });

/** What `read` finds in the settings of a folder. */
function inSettings<T>(folder: string, read: (settings: Settings) => T): T {
  const { path, secret: serviceSecret } = database(folder);
  const opened = openDatabase(path);
  try {
    return read(openSettings(opened, sealer(serviceSecret)));
  } finally {
    opened.close();
  }
}

const ECHO = '/generic/ns/demo/bot-provider/echo/message/sse';
/** Sends a message to the service at `port`. */
const ask = (port: number, key: string) =>
  call(port, ECHO, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-API-KEY': key },
    body: '{"text":"hello"}',
  });

const done = (stdout: string | RegExp): Ran => ({
  code: 0,
  stdout: (typeof stdout === 'string' ? stdout : expect.stringMatching(stdout)) as string,
  stderr: '',
});
const failed = (why: RegExp): Ran => ({
  code: 1,
  stdout: '',
  stderr: expect.stringMatching(why) as unknown as string,
});

describe('bot-relay service keys', () => {
  test('makes, disables, enables and deletes a key, each in force at once for the service that runs', async () => {
    const folder = freshFolder();
    const made = await service(folder, 'keys', 'create', 'one');
    expect(made).toEqual(done(/^brk_[A-Za-z0-9_-]{43}\n$/));
    const key = made.stdout.trim();
    const running = await startBotService({ database: database(folder), speed: { wordMs: 0 }, limit: 100 });
    const status = async () => (await ask(Number(running.url.port), key)).status;
    try {
      expect(await status()).toBe(200);
      expect(await service(folder, 'keys', 'disable', 'one')).toEqual(done('one is disabled.\n'));
      expect(await status()).toBe(401);
      const TIME = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ';
      const line = new RegExp(`^one {3}disabled {3}created ${TIME} {3}used ${TIME}\n$`);
      expect(await service(folder, 'keys', 'list')).toEqual(done(line));
      expect(await service(folder, 'keys', 'enable', 'one')).toEqual(done('one is enabled.\n'));
      expect(await status()).toBe(200);
      expect(await service(folder, 'keys', 'delete', 'one')).toEqual(failed(/^.*add --yes\.\n$/));
      expect(await status()).toBe(200);
      expect(await service(folder, 'keys', 'delete', 'one', '--yes')).toEqual(done('one is deleted.\n'));
      expect(await status()).toBe(401);
    } finally {
      await running.close();
    }
  });

  test('says in one sentence what cannot be done', async () => {
    const folder = freshFolder({ 'text.db': 'This is no database. '.repeat(100) });
    await service(folder, 'keys', 'create', 'one');
    const { id } = inSettings(folder, (settings) => settings.createProject('Parcels'));
    const cases: [RegExp, string[]][] = [
      [/^Say which project: --project with one of Parcels, demo\n$/, ['list']],
      [/^There is no project Letters; there are: Parcels, demo\n$/, ['list', '--project', 'Letters']],
      [/^There is already a key one\.\n$/, ['create', 'one', '--project', 'demo']],
      [/^There is no key one\.\n$/, ['disable', 'one', '--project', 'Parcels']],
      [/^A key's name must be one line/, ['create', 'a\nb', '--project', 'demo']],
    ];
    for (const [why, args] of cases) expect(await service(folder, 'keys', ...args)).toEqual(failed(why));
    expect((await service(folder, 'keys', 'create', 'one', '--project', 'Parcels')).code).toBe(0);
    expect(inSettings(folder, (settings) => settings.keys(id))).toHaveLength(1);
    const run = (environment: Record<string, string>) =>
      runCommand({
        args: ['service', 'keys', 'list'],
        folder,
        environment: { ...ENVIRONMENT, ...environment },
      });
    expect(await run({ SERVICE_SECRET: `${SECRET}!` })).toEqual(
      failed(/^SERVICE_SECRET is not the secret [^.]*\. Start with that one\.\n$/),
    );
    expect(await run({ SERVICE_DATA: 'text.db' })).toEqual(failed(/^text\.db cannot be used: [^\n]*\n$/));
    expect(await run({ SERVICE_DATA: '' })).toEqual(failed(/^SERVICE_DATA is not set: [^.]*\.\n$/));
    expect(await run({ SERVICE_SECRET: '' })).toEqual({
      code: 78,
      stdout: '',
      stderr: expect.stringContaining('SERVICE_SECRET must be set with SERVICE_DATA'),
    });
  });
});

describe('bot-relay service password', () => {
  test('stores the hash of what is piped into it, and refuses a short one', async () => {
    const folder = freshFolder();
    const run = async (input: string) => {
      const ran = startProcess({ args: ['service', 'password'], folder, environment: ENVIRONMENT, input });
      return { ...(await ran.exited), stdout: ran.stdout(), stderr: ran.stderr() };
    };
    const stored = () => inSettings(folder, (settings) => settings.consoleValue(PASSWORD_HASH) ?? '');
    expect(await run('short\n')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^A password has at least 8/),
    });
    expect(stored()).toBe('');
    expect(await run(`${CANARY.password}\n`)).toMatchObject({ code: 0, stderr: '' });
    expect(await verifyPassword(CANARY.password, stored())).toBe(true);
  });
});

describe('bot-relay service backup', () => {
  test('copies the database to a new file, never over one, and makes none where there is nothing', async () => {
    const folder = freshFolder();
    expect(await service(folder, 'backup', 'copy.db')).toEqual(failed(/^service\.db cannot be opened/));
    expect([existsSync(join(folder, 'service.db')), existsSync(join(folder, 'copy.db'))]).toEqual([
      false,
      false,
    ]);
    await service(folder, 'keys', 'create', 'one');
    expect(await service(folder, 'backup', 'copy.db')).toEqual(done(/^copy\.db holds all/));
    expect(await service(folder, 'backup', 'copy.db')).toEqual(
      failed(/^copy\.db exists already: name a new file\.\n$/),
    );
    const args = ['service', 'keys', 'list', '--project', DEMO];
    const environment = { ...ENVIRONMENT, SERVICE_DATA: 'copy.db' };
    expect(await runCommand({ args, folder, environment })).toEqual(done(/^one {3}active/));
  });
});

describe('bot-relay service without more', () => {
  test('accepts the keys of its file, keeps its limit, has a console, and stops on a signal', async () => {
    const folder = freshFolder({ keys: `${CANARY.key}\n${CANARY.secondKey}\n` });
    const args = ['service', '--keys-file', 'keys', '--rate-limit', '2'];
    const running = startProcess({ folder, args, environment: LISTENING });
    const port = await running.listening();
    for (const key of [CANARY.key, CANARY.secondKey]) {
      const answered = { status: 200, body: expect.stringMatching(/event: asgard\.run\.done\n.*\n\n$/) };
      expect(await ask(port, key)).toMatchObject(answered);
    }
    expect(await ask(port, 'another-key')).toMatchObject({ status: 401 });
    // Far more than it takes in any second.
    const statuses = (await Promise.all(Array.from({ length: 100 }, () => ask(port, CANARY.key)))).map(
      ({ status }) => status,
    );
    expect(statuses).toContain(429);
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    const [, link = ''] = await running.waitFor(/for one sign-in: (\S+)\n/);
    expect((await fetch(link)).status).toBe(200);
    expect(running.stdout()).toContain(`\n  The bot service is running: http://127.0.0.1:${port}\n`);
    expect(running.stdout()).toContain('\n  It keeps everything in service.db.\n');
    expect(
      running
        .stdout()
        .match(/^\{.*$/gm)
        ?.join(),
    ).not.toContain('token');

    const second = startProcess({ folder, args: ['service'], environment: LISTENING });
    expect(await second.exited).toEqual({ code: 78, signal: null });
    expect(second.stderr()).toBe(
      'Another bot service is running with the database service.db. Stop it first.\n',
    );
    running.signal('SIGTERM');
    expect(await running.exited).toEqual({ code: 0, signal: null });
    expect(running.stderr()).toBe('');
    // The keys of the file are in the database.
    expect(
      (await service(folder, 'keys', 'list')).stdout.match(/^imported [0-9a-f]{8} {3}active/gm),
    ).toHaveLength(2);
  });

  test('says in one line what it cannot be started with', async () => {
    const folder = freshFolder({ none: ',\n', keys: 'key' });
    expect(await service(folder, '--keys-file', 'nothing')).toEqual(
      failed(/^The file of --keys-file cannot be read: ENOENT[^\n]*\n$/),
    );
    expect(await service(folder, '--keys-file', 'none')).toEqual(
      failed(/^The file of --keys-file is empty\.\n$/),
    );
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    for (const name of ['SERVICE_PORT', 'SERVICE_CONSOLE_PORT']) {
      const refused = startProcess({ args: ['service'], environment: { ...LISTENING, [name]: `${port}` } });
      expect((await refused.exited).code).toBe(1);
      expect(refused.stderr()).toMatch(
        new RegExp(
          `^The bot service cannot listen on SERVICE_\\w+ and ${name}: .*; set ${name} to another\n$`,
        ),
      );
    }
    taken.close();
  });
});

test('a key of the service is replaced while messages are sent, and no user notices', async () => {
  const folder = freshFolder();
  const keys = async (...args: string[]) => {
    const { code, stdout, stderr } = await service(folder, 'keys', ...args);
    expect([code, stderr]).toEqual([0, '']);
    return stdout.trim();
  };
  const old = await keys('create', 'old');
  const args = ['service', '--rate-limit', '1000'];
  const port = await startProcess({ args, folder, environment: LISTENING }).listening();
  const deployment = await deployRelays({ url: `http://127.0.0.1:${port}`, key: old }, 1);
  const [relay] = deployment.relays;
  const sending = deployment.keepSending();
  await sending.more(1);
  const configure = async (...all: string[]) => {
    deployment.putKeys(...all);
    relay?.signal('SIGHUP');
    await deployment.reloaded(...all.map((key) => secret(key).fingerprint));
  };

  // Create, configure, confirm at both sides, and take the old one away.
  const key = await keys('create', 'new');
  expect(await keys('list')).toMatch(/^new +active +created \S+ +used never$/m);
  await configure(key, old);
  const { fingerprint } = secret(key);
  await relay?.waitFor(new RegExp(`"keyFingerprint":"${fingerprint}","msg":"upstream key accepted"`));
  expect(await keys('list')).toMatch(/^new +active +created \S+ +used \d/m);
  await configure(key);
  await sending.settled();
  expect(await keys('disable', 'old')).toBe('old is disabled.');
  expect((await ask(port, old)).status).toBe(401);
  await sending.more(2);
  const endings = await sending.end();
  expect(endings.filter((ending) => ending !== 'answered')).toEqual([]);
  expect(relay?.stdout()).not.toContain('upstream key rejected');
});

test('bot-relay service prints its usage for arguments that it does not know, and makes no file', async () => {
  const folder = freshFolder();
  for (const args of [
    ...[['nothing'], ['--json'], ['--rate-limit', '0'], ['test', 'a', 'b'], ['password', 'x']],
    ...[['backup'], ['backup', ''], ['backup', 'a', '--project', 'demo'], ['keys']],
    ...[['create'], ['create', 'a', 'b'], ['create', 'a', '--yes'], ['list', 'a']].map((one) => [
      'keys',
      ...one,
    ]),
    ...[
      ['constructor', 'a'],
      ['list', '--json'],
    ].map((one) => ['keys', ...one]),
  ]) {
    const stderr = expect.stringMatching(/^Usage: bot-relay service \[--keys-file FILE\]/);
    expect([args, await service(folder, ...args)]).toEqual([args, { code: 64, stdout: '', stderr }]);
    expect(existsSync(join(folder, 'service.db'))).toBe(false);
  }
});
