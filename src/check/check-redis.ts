import type { Config } from '../config/config.ts';
import { isLoopback } from '../http/hosts.ts';
import { createLogger } from '../logger.ts';
import { openRedis, type Redis, whenConnected } from '../storage/redis.ts';
import { redisAddress } from '../storage/redis-address.ts';
import type { RedisSettings } from '../storage/redis-settings.ts';
import { redisAdviceFor } from './advice.ts';
import type { About, CheckReport } from './report.ts';

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
  report: CheckReport,
): Promise<Redis | undefined> {
  if (!settings) {
    const says = 'REDIS_URL is not set: sessions and budgets are in the memory of one process; run only one';
    report.about('Redis').note(says);
    return undefined;
  }
  const about = report.about('Redis', redisAddress(settings.url).host);
  const redis = openRedis({ ...settings, logger: createLogger('silent') });
  try {
    await whenConnected(redis);
    const ms = await medianPing(redis);
    await redis.run((client) => client.set(TEST_KEY, '1', { expiration: { type: 'PX', value: 1000 } }));
    const masters = await redis.onEach(async () => 1);
    reportReachable({ settings, ms, masters: masters.length }, about);
    await checkKeeping(redis, settings, about);
    return redis;
  } catch (error) {
    redis.close();
    const code = String((error as Error).cause);
    about.problem(`cannot be used (${code})`, redisAdviceFor(code));
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

interface Reached {
  readonly settings: RedisSettings;
  readonly ms: number;
  readonly masters: number;
}

function reportReachable({ settings, ms, masters }: Reached, { add }: About): void {
  const { nodes, tls } = redisAddress(settings.url);
  const { isCluster, sentinel } = settings;
  const kind = isCluster
    ? `, a cluster of ${masters} masters`
    : sentinel
      ? ', the master that Sentinel names'
      : '';
  const isClear = !tls && !nodes.every(({ hostname }) => isLoopback(hostname));
  const advice =
    ms > SLOW_MS
      ? 'Put Redis nearer: every message asks it a few times before it starts.'
      : isClear
        ? 'Over a network that others share, use rediss://.'
        : undefined;
  const says = `answers in ${ms.toFixed(1)} ms, ${tls ? 'over TLS' : 'not encrypted'}${kind}`;
  add({ state: advice ? 'note' : 'ok', says, advice, measured: { latencyMs: ms } });
}

/**
 * Checks that Redis evicts nothing, and that each master has a replica if one can take over, by what it says of itself
 * (the command INFO).
 */
async function checkKeeping(
  redis: Redis,
  { isCluster, sentinel }: RedisSettings,
  { note, problem }: About,
): Promise<void> {
  let texts: string[];
  try {
    const memory = await redis.onEach((server) => server.info('memory'));
    texts = [...memory, ...(await redis.onEach((server) => server.info('replication')))];
  } catch {
    const advice = 'Look at its maxmemory-policy, which must be noeviction.';
    return note('does not tell with INFO whether it evicts', advice);
  }
  const found = (name: string) =>
    texts.flatMap((text) => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? []);
  const evicting = found('maxmemory_policy').find((policy) => policy !== 'noeviction');
  if (evicting !== undefined) {
    const says = `may evict what it holds (maxmemory-policy ${evicting}): a session that it evicts is signed out, and a message whose name it evicts can run twice`;
    problem(says, 'Set maxmemory-policy noeviction.');
  }
  if ((isCluster || sentinel) && found('connected_slaves').includes('0'))
    note(
      'has a master without a replica: if it is lost, nobody takes its place',
      'Give each master a replica.',
    );
}
