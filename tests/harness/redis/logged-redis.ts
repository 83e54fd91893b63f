import { createLogger } from '../../../src/logger.ts';
import { secret } from '../../../src/secret.ts';
import { openRedis, type Redis } from '../../../src/storage/redis.ts';
import { stopRedis } from './redis.ts';

const opened: Redis[] = [];

/** Opens a connection whose log goes to `lines`. */
export function openLogged(
  url: string,
  lines: string[] = [],
  options: Partial<Parameters<typeof openRedis>[0]> = {},
): Redis {
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const redis = openRedis({ url: secret(url), logger, ...options });
  opened.push(redis);
  return redis;
}

/** Closes what `openLogged` has opened, and all servers. */
export function closeLogged(): void {
  for (const redis of opened.splice(0)) redis.close();
  stopRedis();
}

export const ping = async (redis: Redis) => (await redis.onEach((server) => server.ping()))[0];
export const messages = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).msg);
