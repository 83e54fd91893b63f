import { readFileSync } from 'node:fs';
import { newPassword } from '../authenticate/password/ask-password.ts';
import { hashPassword } from '../authenticate/password/password-hash.ts';
import { loadServiceConfig, type ServiceConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { runService } from '../process/run-service.ts';
import { isUnderNpm } from '../process/shutdown.ts';
import { backUp } from '../service/settings/backup.ts';
import { openDatabase } from '../service/settings/database.ts';
import { sealer } from '../service/settings/sealed.ts';
import { openSettings, PASSWORD_HASH, type Settings } from '../service/settings/settings.ts';
import { SettingsError } from '../service/settings/settings-error.ts';
import { type Asked, readServiceArguments } from './service-arguments.ts';
import { changeKeys } from './service-keys.ts';
import { assistantModel, modelsOfProjects, testModels } from './service-test.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE = `Usage: bot-relay service [--keys-file FILE] [--rate-limit N]     run the bot service and its console
       bot-relay service test [PROJECT] [--json]                ask each model for a small answer
       bot-relay service keys create NAME [--project P]         make a key, and print it
       bot-relay service keys list [--project P]                print names and states of the keys
       bot-relay service keys disable NAME [--project P]        refuse a key
       bot-relay service keys enable NAME [--project P]         take it again
       bot-relay service keys delete NAME --yes [--project P]   refuse it for good
       bot-relay service password                               set the password of the console
       bot-relay service backup FILE                            copy the database to a new file
All but the first use the database of SERVICE_DATA, also while the service runs; it needs no restart.
--keys-file names a file with keys that the project demo takes, separated by commas or line ends; --rate-limit sets how
many requests an endpoint takes in a second, which is 5.
`;

/**
 * Runs the bot service of this environment, or maintains it. Returns the exit code, or nothing while the service runs.
 */
export async function run(args: readonly string[]): Promise<number | undefined> {
  const asked = readServiceArguments(args);
  if (!asked) {
    process.stderr.write(USAGE);
    return EX_USAGE;
  }
  const sources = readEnvironment();
  const config = loadServiceConfig(sources);
  try {
    if (asked.what !== 'start') return await maintain(asked, config);
    const keys = asked.keysFile === undefined ? [] : readKeys(asked.keysFile);
    const limit = asked.limit === undefined ? {} : { limit: asked.limit };
    await runService(config, { keys, ...limit, underNpm: isUnderNpm(sources.environment) });
    return undefined;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
}

/** @throws SettingsError */
function readKeys(path: string): string[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new SettingsError(`The file of --keys-file cannot be read: ${(error as Error).message}`);
  }
  const keys = text
    .split(/[,\n]/)
    .map((key) => key.trim())
    .filter((key) => key !== '');
  if (keys.length === 0) throw new SettingsError('The file of --keys-file is empty.');
  return keys;
}

type Maintenance = Exclude<Asked, { readonly what: 'start' }>;

/** Does what is asked for, and prints what is to be said. Returns the exit code. @throws SettingsError */
async function maintain(asked: Maintenance, config: ServiceConfig): Promise<number> {
  const { lines, isGood = true } = await act(asked, config);
  for (const line of lines) process.stdout.write(`${line}\n`);
  return isGood ? 0 : 1;
}

/** Does what is asked for, and returns the lines to print. */
async function act(
  asked: Maintenance,
  config: ServiceConfig,
): Promise<{ readonly lines: readonly string[]; readonly isGood?: boolean }> {
  if (asked.what === 'test') {
    const { project, asJson } = asked;
    const assistant = project === undefined ? assistantModel(config.model) : [];
    if (config.data === undefined && assistant.length > 0) return testModels(assistant, asJson);
    const models = await withSettings(config, async (settings) => modelsOfProjects(settings, project));
    return testModels([...models, ...assistant], asJson);
  }
  if (asked.what === 'backup') {
    backUp(fileOf(config).path, asked.file);
    return { lines: [`${asked.file} holds all that the service keeps. It opens with SERVICE_SECRET only.`] };
  }
  if (asked.what === 'keys')
    return { lines: await withSettings(config, async (settings) => changeKeys(settings, asked.action)) };
  return { lines: [await withSettings(config, setPassword)] };
}

/** @throws SettingsError if the service keeps its data in memory */
function fileOf({ data: path, secret }: ServiceConfig) {
  if (path === undefined || !secret)
    throw new SettingsError(
      'SERVICE_DATA is not set: name the file of the service, with the SERVICE_SECRET that it is started with.',
    );
  return { path, secret };
}

/** Opens the settings for one thing to do. */
async function withSettings<T>(config: ServiceConfig, use: (settings: Settings) => Promise<T>): Promise<T> {
  const { path, secret } = fileOf(config);
  const database = openDatabase(path);
  try {
    return await use(openSettings(database, sealer(secret)));
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
