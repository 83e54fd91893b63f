import type { Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { newPassword, type Terminal } from '../authenticate/password/ask-password.ts';
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

/** A terminal, and where it shows what went wrong. */
export interface CommandTerminal extends Terminal {
  readonly errors: Writable;
}

/** Maintains the bot service of this environment, at this terminal. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const terminal = { input: process.stdin, output: process.stdout, errors: process.stderr };
  const asked = readArguments(args);
  if (!asked) {
    terminal.errors.write(USAGE);
    return EX_USAGE;
  }
  const { data, secret } = loadServiceConfig(readEnvironment());
  if (data !== undefined && secret) return serviceCommand(asked, { path: data, secret }, terminal);
  terminal.errors.write('SERVICE_DATA is not set: the service keeps its data in memory.\n');
  return 1;
}

/** Does what is asked for. Returns the exit code: 0 done, 1 could not be done. */
async function serviceCommand(asked: Asked, database: Database, terminal: CommandTerminal): Promise<number> {
  try {
    if (asked.what === 'backup') {
      backUp(database.path, asked.file);
      terminal.output.write(`${asked.file} holds all that the service keeps. It opens with SERVICE_SECRET only.\n`);
    } else if (asked.what === 'keys') {
      await withSettings(database, (settings) => changeKeys(settings, asked.action, terminal.output));
    } else {
      await withSettings(database, (settings) => setPassword(settings, terminal));
    }
    return 0;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    terminal.errors.write(`${error.message}\n`);
    return 1;
  }
}

async function withSettings(
  { path, secret }: Database,
  act: (settings: Settings) => void | Promise<void>,
): Promise<void> {
  const database = openDatabase(path);
  try {
    await act(openSettings(database, sealer(secret)));
  } finally {
    database.close();
  }
}

async function setPassword(settings: Settings, terminal: Terminal): Promise<void> {
  const password = await newPassword(terminal).catch((error: Error) => {
    throw new SettingsError(error.message);
  });
  settings.setConsoleValue(PASSWORD_HASH, await hashPassword(password));
  terminal.output.write('The console takes this password now.\n');
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
