import { existsSync } from 'node:fs';
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

afterAll(async () => {
  await stopCommands();
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
    const status = async () => {
      const headers = { 'Content-Type': 'application/json', 'X-API-KEY': key };
      const path = '/ns/demo/bot-provider/echo/message/sse';
      return (await call(Number(running.url.port), path, { method: 'POST', headers, body: '{}' })).status;
    };
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
      failed(/^SERVICE_SECRET is not the secret [^.]*\.\n$/),
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
    expect(await service(folder, 'backup', 'copy.db')).toEqual(failed(/^copy\.db exists already\.\n$/));
    const args = ['service', 'keys', 'list', '--project', DEMO];
    const environment = { ...ENVIRONMENT, SERVICE_DATA: 'copy.db' };
    expect(await runCommand({ args, folder, environment })).toEqual(done(/^one {3}active/));
  });
});

describe('bot-relay service', () => {
  const keys = (...args: string[]) => ['keys', ...args];
  test.each([
    [['nothing']],
    [['--json']],
    [['--rate-limit', '0']],
    [['test', 'a', 'b']],
    [['start']],
    [['password', 'x']],
    [['backup']],
    [['backup', '']],
    [['backup', 'a', 'b']],
    [['backup', 'a', '--project', 'demo']],
    [keys()],
    [keys('create')],
    [keys('create', '')],
    [keys('create', 'a', 'b')],
    [keys('create', 'a', '--yes')],
    [keys('list', 'a')],
    [keys('remove', 'a')],
    [keys('constructor', 'a')],
    [keys('list', '--json')],
  ])('prints its usage for the arguments %j, and makes no file', async (args) => {
    const folder = freshFolder();
    expect(await service(folder, ...args)).toEqual({
      code: 64,
      stdout: '',
      stderr: expect.stringMatching(/^Usage: bot-relay service \[--keys-file FILE\]/),
    });
    expect(existsSync(join(folder, 'service.db'))).toBe(false);
  });
});
