import type { Config } from '../config/config.ts';
import { isLoopback } from '../http/hosts.ts';
import { createLogger } from '../logger.ts';
import { openRedis, type Redis, whenConnected } from '../storage/redis.ts';
import { type RedisAddress, redisAddress } from '../storage/redis-address.ts';
import type { RedisSettings } from '../storage/redis-settings.ts';
import { checkRedisKeeping } from './check-redis-keeping.ts';
import type { Report } from './findings.ts';
import { redisAdviceFor } from './redis-advice.ts';

const CHECK = 'Redis';
const PINGS = 5;
/** Each message makes several calls to Redis before it is sent, so users notice answers slower than this, in ms. */
const SLOW_MS = 50;
const TEST_KEY = 'bot-relay:check';

/**
 * Checks that Redis can be reached and written to, how fast it is, and whether it keeps what it holds. Returns it if so;
 * the caller closes it.
 */
export async function checkRedis(
  { redis: settings }: Pick<Config, 'redis'>,
  report: Report,
): Promise<Redis | undefined> {
  if (!settings) {
    const says = 'REDIS_URL is not set: sessions and budgets are in the memory of one process; run only one';
    report({ state: 'note', check: CHECK, says });
    return undefined;
  }
  const address = redisAddress(settings.url);
  const { host } = address;
  const redis = openRedis({ ...settings, logger: createLogger('silent') });
  try {
    await whenConnected(redis);
    const ms = await medianPing(redis);
    await redis.run((client) => client.set(TEST_KEY, '1', { expiration: { type: 'PX', value: 1000 } }));
    const masters = await redis.onEach(async () => 1);
    const kind = kindOf(settings, masters.length);
    reportReachable({ ...address, kind }, ms, report);
    await checkRedisKeeping(redis, { report, about: host, needsReplicas: kind !== '' });
    return redis;
  } catch (error) {
    redis.close();
    const code = String((error as Error).cause);
    const says = `cannot be used (${code})`;
    report({ state: 'problem', check: CHECK, about: host, says, advice: redisAdviceFor(code) });
    return undefined;
  }
}

async function medianPing(redis: Redis): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < PINGS; i++) {
    const startedAt = performance.now();
    await redis.onEach((server) => server.ping());
    times.push(performance.now() - startedAt);
  }
  return times.sort((a, b) => a - b)[Math.floor(PINGS / 2)] as number;
}

/** What Redis is, if it is more than one server. */
function kindOf({ isCluster, sentinel }: RedisSettings, masters: number): string {
  if (isCluster) return `, a cluster of ${masters} masters`;
  return sentinel ? ', the master that Sentinel names' : '';
}

function reportReachable(
  { host, nodes, tls, kind }: RedisAddress & { readonly kind: string },
  ms: number,
  report: Report,
): void {
  const says = `answers in ${ms.toFixed(1)} ms, ${tls ? 'over TLS' : 'not encrypted'}${kind}`;
  const advice = adviceOn({
    clear: !tls && !nodes.every(({ hostname }) => isLoopback(hostname)),
    slow: ms > SLOW_MS,
  });
  report({
    state: advice ? 'note' : 'ok',
    check: CHECK,
    about: host,
    says,
    ...(advice && { advice }),
    measured: { latencyMs: ms },
  });
}

function adviceOn({ clear, slow }: { clear: boolean; slow: boolean }): string | undefined {
  if (slow) return 'Put Redis nearer: every message asks it a few times before it starts.';
  return clear ? 'Over a network that others share, use rediss://.' : undefined;
}
