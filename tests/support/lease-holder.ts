/** A process that holds leases of one holder until it is killed: `lease-holder.ts REDIS_URL HOLDER`. */

import { createLogger } from '../../src/logger.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import { secret } from '../../src/secret.ts';
import { openRedis } from '../../src/storage/redis.ts';
import { sleep } from './sleep.ts';

const [url = '', holder = ''] = process.argv.slice(2);
const redis = openRedis({ url: secret(url), logger: createLogger('silent') });
while (!(await redis.onEach((server) => server.ping()).catch(() => false))) {
  await sleep(10);
}
const leases = redisStreamLeases(redis, { leaseMs: 900, renewMs: 200 });
await Promise.all([1, 2, 3].map(() => leases.acquire(holder, 3)));
process.stdout.write('held\n');
