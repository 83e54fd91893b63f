import { parseArgs } from 'node:util';
import { realmOf } from '../authenticate/sessions/session.ts';
import { loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { isUsableId } from '../guard/channel-places.ts';
import { type ChannelOwner, scopedChannelId } from '../guard/scoped-channels.ts';
import { EX_USAGE } from './usage.ts';

export const USAGE = `Usage: bot-relay channel-id --user USER --id ID   print the id of a user's conversation at the bot service
ID is the id that the page sends: 1 to 256 characters
`;

const OPTIONS = { user: { type: 'string' }, id: { type: 'string' } } as const;

/**
 * Prints the id that the bot service has for a conversation of this environment's configuration. Returns the exit code:
 * 0 done, 1 the configuration gives conversations no such id, 64 wrong arguments.
 */
export async function run(args: readonly string[]): Promise<number> {
  const owner = readArguments(args);
  if (!owner) {
    process.stderr.write(USAGE);
    return EX_USAGE;
  }
  const { environment, inFile } = readEnvironment();
  const config = loadConfig(environment, inFile);
  const { mode, secret, secretIsSet, realm = realmOf(config) } = config.channels;
  if (mode !== 'scoped')
    return fail(`CHANNELS is ${mode}: the bot service gets the ids of pages as they are.`);
  if (!secretIsSet) return fail('CHANNEL_SECRET is not set: the ids are others after each start.');
  process.stdout.write(`${scopedChannelId(secret, { realm, ...owner })}\n`);
  return 0;
}

function readArguments(args: readonly string[]): Omit<ChannelOwner, 'realm'> | undefined {
  try {
    const { user: userId, id } = parseArgs({ args: [...args], options: OPTIONS }).values;
    return userId && isUsableId(id) ? { userId, id } : undefined;
  } catch {
    return undefined;
  }
}

function fail(reason: string): number {
  process.stderr.write(`${reason}\n`);
  return 1;
}
