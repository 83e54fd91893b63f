import { parseArgs } from 'node:util';
import { newPassword } from '../authenticate/password/ask-password.ts';
import { hashPassword } from '../authenticate/password/password-hash.ts';
import { loadServiceConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import type { Secret } from '../secret.ts';
import { backUp } from '../service/settings/backup.ts';
import { openDatabase } from '../service/settings/database.ts';
import { sealer } from '../service/settings/sealed.ts';
import { openSettings, PASSWORD_HASH, type Settings } from '../service/settings/settings.ts';
import { SettingsError } from '../service/settings/settings-error.ts';
import { changeKeys, isKeyAction, type KeyAction } from './service-keys.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE = `Usage: bot-relay service keys create NAME [--project P]         make a key, and print it
       bot-relay service keys list [--project P]                print names and states of the keys
       bot-relay service keys disable NAME [--project P]        refuse a key
       bot-relay service keys enable NAME [--project P]         take it again
       bot-relay service keys delete NAME --yes [--project P]   refuse it for good
       bot-relay service password                               set the password of the console
       bot-relay service backup FILE                            copy the database to a new file
They change the database of SERVICE_DATA, also while the service runs; it needs no restart.
`;

/** The database that a command works on. */
interface Database {
  readonly path: string;
  readonly secret: Secret;
}

/** What the command line asks for. */
type Asked =
  | { readonly what: 'password' }
  | { readonly what: 'backup'; readonly file: string }
  | { readonly what: 'keys'; readonly action: KeyAction };

/** Maintains the bot service of this environment, at this terminal. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const asked = readArguments(args);
  if (!asked) {
    process.stderr.write(USAGE);
    return EX_USAGE;
  }
  const { data: path, secret } = loadServiceConfig(readEnvironment());
  if (path === undefined || !secret)
    return fail('SERVICE_DATA is not set: the service keeps its data in memory.');
  try {
    for (const line of await act(asked, { path, secret })) process.stdout.write(`${line}\n`);
    return 0;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return fail(error.message);
  }
}

/** Does what is asked for. Returns the lines to print. @throws SettingsError */
async function act(asked: Asked, { path, secret }: Database): Promise<readonly string[]> {
  if (asked.what === 'backup') {
    backUp(path, asked.file);
    return [`${asked.file} holds all that the service keeps. It opens with SERVICE_SECRET only.`];
  }
  const database = openDatabase(path);
  try {
    const settings = openSettings(database, sealer(secret));
    return asked.what === 'keys' ? changeKeys(settings, asked.action) : [await setPassword(settings)];
  } finally {
    database.close();
  }
}

async function setPassword(settings: Settings): Promise<string> {
  const terminal = { input: process.stdin, output: process.stdout };
  const password = await newPassword(terminal).catch((error: Error) => {
    throw new SettingsError(error.message);
  });
  settings.setConsoleValue(PASSWORD_HASH, await hashPassword(password));
  return 'The console takes this password now.';
}

function fail(reason: string): number {
  process.stderr.write(`${reason}\n`);
  return 1;
}

const OPTIONS = { project: { type: 'string' }, yes: { type: 'boolean' } } as const;

function readArguments(args: readonly string[]): Asked | undefined {
  try {
    const { values, positionals } = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
    const [what, ...names] = positionals;
    const hasOptions = Object.keys(values).length > 0;
    if (what === 'keys') {
      const [verb = '', name = '', ...more] = names;
      const action = { verb, name, ...values };
      return more.length === 0 && isKeyAction(action) ? { what, action } : undefined;
    }
    if (hasOptions) return undefined;
    const [file] = names;
    if (what === 'backup' && file && names.length === 1) return { what, file };
    return what === 'password' && names.length === 0 ? { what } : undefined;
  } catch {
    return undefined;
  }
}
