import { realmOf } from '../authenticate/sessions/realm.ts';
import { catchConfigError } from '../config/catch-config-error.ts';
import { type Config, loadConfig } from '../config/config.ts';
import { readEnvironment } from '../config/environment.ts';
import { Problem } from '../errors.ts';
import { type OwnedChannels, ownedChannels } from '../guard/owned-channels.ts';
import { redisChannelOwners } from '../guard/redis-channel-owners.ts';
import { createLogger } from '../logger.ts';
import { whenConnected } from '../storage/connected-redis.ts';
import { openRedis } from '../storage/redis.ts';
import type { RedisSettings } from '../storage/redis-settings.ts';

export const USAGE = `Usage: npm run channels -- own USER ID   make a conversation that of a user, with CHANNELS=owned
       npm run channels -- release ID    take a conversation away from its user
`;

/** What a command does with the owners of conversations. Returns the exit code. */
type Action = (channels: OwnedChannels) => Promise<number>;

/**
 * Gives a conversation of the bot service to a user, or takes it away, where this environment's configuration keeps the
 * owners. Returns the exit code: 0 it is so now, 1 it belongs to another user, or to nobody, or the owners cannot be
 * reached, 64 wrong arguments.
 */
export function run(args: readonly string[]): Promise<number> {
  return catchConfigError(async () => {
    const action = actionOf(args);
    if (!action) {
      process.stderr.write(USAGE);
      return 64;
    }
    const { environment, inFile } = readEnvironment();
    const config = loadConfig(environment, inFile);
    const { redis, upstream, channels } = config;
    if (channels.mode !== 'owned') return fail(`CHANNELS is ${channels.mode}: conversations have no owners.`);
    if (!redis) return fail('REDIS_URL is not set: each relay keeps the owners in its own memory.');
    if (!upstream.baseUrl) return fail('UPSTREAM_BASE_URL is not set: a demo has no old conversations.');
    return withOwners({ config, settings: redis, service: upstream.baseUrl }, action);
  });
}

/** The action that the arguments ask for; undefined if they are wrong. */
function actionOf([name, ...words]: readonly string[]): Action | undefined {
  if (words.some((word) => word === '')) return undefined;
  const [first = '', second = ''] = words;
  if (name === 'own' && words.length === 2) return (channels) => own(channels, first, second);
  if (name === 'release' && words.length === 1) return (channels) => release(channels, first);
  return undefined;
}

async function own(channels: OwnedChannels, userId: string, id: string): Promise<number> {
  if (!(await channels.give(id, userId)))
    return fail('This conversation belongs to another user. To take it away: npm run channels -- release ID');
  return done(`The conversation is that of ${userId} now.`);
}

async function release(channels: OwnedChannels, id: string): Promise<number> {
  if (!(await channels.release(id))) return fail('This conversation belongs to nobody.');
  return done('The conversation belongs to nobody now.');
}

interface Deployment {
  readonly config: Config;
  readonly settings: RedisSettings;
  readonly service: Readonly<URL>;
}

async function withOwners({ config, settings, service }: Deployment, action: Action): Promise<number> {
  const redis = openRedis({ ...settings, logger: createLogger('silent') });
  const { realm = realmOf(config) } = config.channels;
  try {
    await whenConnected(redis);
    return await action(ownedChannels({ owners: redisChannelOwners(redis), realm, service }));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const isWrong = error.code === 'invalid_conversation';
    return fail(isWrong ? error.message : `Redis does not answer (${error.cause}).`, isWrong ? 64 : 1);
  } finally {
    redis.close();
  }
}

function done(text: string): number {
  process.stdout.write(`${text}\n`);
  return 0;
}

function fail(reason: string, exitCode = 1): number {
  process.stderr.write(`${reason}\n`);
  return exitCode;
}
