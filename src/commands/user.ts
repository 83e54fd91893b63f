import { newPassword, type Terminal } from '../authenticate/password/ask-password.ts';
import { listUsers, removeUser, saveUser } from '../authenticate/password/users.ts';
import { checkNames, loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { VARIABLES } from '../config/variables.ts';
import { Problem } from '../errors.ts';
import { createLogger } from '../logger.ts';
import { ACCOUNT_ATTEMPTS } from '../pace/attempts.ts';
import { forgetFailures } from '../pace/redis-attempts.ts';
import { openRedis, whenConnected } from '../storage/redis.ts';
import type { RedisSettings } from '../storage/redis-settings.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE = `Usage: bot-relay user add NAME      add a user, or set a new password
       bot-relay user remove NAME   remove a user
       bot-relay user list          print the names
       bot-relay user unlock NAME   forget the failed sign-ins of a user
`;

/** Maintains the users of this environment, at this terminal. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const sources = readEnvironment();
  checkNames(sources);
  const [action, name] = args;
  if (action === 'unlock' && name && args.length === 2) {
    const { redis } = loadConfig(sources.environment, sources.inFile);
    return unlock(name, redis, (line) => process.stdout.write(`${line}\n`));
  }
  const file = sources.environment.USERS_FILE || VARIABLES.USERS_FILE.fallback;
  return userCommand(args, file, { input: process.stdin, output: process.stdout });
}

/** Unlocks an account after too many failed sign-ins. Returns 0, or 1 if nothing was done. */
async function unlock(
  name: string,
  settings: RedisSettings | undefined,
  say: (line: string) => void,
): Promise<number> {
  if (!settings) {
    say(
      `Without REDIS_URL each relay counts failed sign-ins in its own memory: restart it to unlock ${name}.`,
    );
    return 1;
  }
  const redis = openRedis({ ...settings, logger: createLogger('silent') });
  try {
    await whenConnected(redis);
    const hadFailures = await forgetFailures(redis, ACCOUNT_ATTEMPTS, name);
    say(
      hadFailures
        ? `The failed sign-ins of ${name} are forgotten.`
        : `No failed sign-ins of ${name} are counted.`,
    );
    return hadFailures ? 0 : 1;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    say('Redis cannot be used; npx bot-relay check says why.');
    return 1;
  } finally {
    redis.close();
  }
}

/**
 * Maintains the users file at `path`. A new password is asked for on the terminal, which does not show it; if the
 * input is no terminal, the password is all of the input (without one line end at its end).
 * Returns the exit code: 0 done, 1 could not be done, 64 wrong arguments.
 */
export async function userCommand(
  args: readonly string[],
  path: string,
  terminal: Terminal,
): Promise<number> {
  const [action, name = ''] = args;
  const say = (line: string) => terminal.output.write(`${line}\n`);
  const isWhole = args.length === (action === 'list' ? 1 : 2);
  try {
    switch (isWhole ? action : undefined) {
      case 'add':
        await saveUser(path, name, await newPassword(terminal));
        say(`${name} can sign in now (${path}).`);
        return 0;
      case 'remove': {
        const removed = removeUser(path, name);
        say(
          removed
            ? `${name} can no longer sign in; open sessions last until they expire.`
            : `No user ${name}.`,
        );
        return removed ? 0 : 1;
      }
      case 'list':
        for (const user of listUsers(path)) say(user);
        return 0;
    }
  } catch (error) {
    say((error as Error).message);
    return 1;
  }
  terminal.output.write(USAGE);
  return EX_USAGE;
}
