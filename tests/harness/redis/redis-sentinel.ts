import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '../clock/until.ts';
import { type RedisServer, redisFolder, startRedis, startServer } from './redis-server.ts';

export const MASTER_NAME = 'relays';
/** How long the master may not answer before another one takes its place, in ms. */
const DOWN_MS = 1_000;
const TIMES = [
  `sentinel down-after-milliseconds ${MASTER_NAME} ${DOWN_MS}`,
  `sentinel failover-timeout ${MASTER_NAME} 10000`,
];

export type SentinelGroup = Awaited<ReturnType<typeof startSentinels>>;

/** Starts a master with a replica, and three sentinels that watch it; `more` are lines of their configuration. */
export async function startSentinels(...more: string[]) {
  const options = ['--repl-diskless-sync-delay', '0'];
  const first = await startRedis(...options);
  const replicaOf = ['--replicaof', `127.0.0.1 ${first.port}`];
  const servers = [first, await startRedis(...options, ...replicaOf)];
  await eventually(async () => {
    if (!String(await first.command('INFO', 'replication')).includes('state=online'))
      throw new Error('not yet');
  });
  const sentinels: RedisServer[] = [];
  for (let n = 0; n < 3; n += 1) {
    const file = sentinelFile(first.port, 2, [...TIMES, ...more]);
    sentinels.push(await startServer(file, '--sentinel'));
  }
  // All know each other, and the replica.
  for (const sentinel of sentinels) {
    await eventually(async () => {
      const info = String(await sentinel.command('INFO', 'sentinel'));
      if (!info.includes('slaves=1,sentinels=3')) throw new Error('not yet');
    });
  }
  return {
    /** With the three sentinels. */
    url: `redis://${sentinels.map(({ host }) => host).join(',')}`,
    ...{ sentinels, servers },
    /** The server that the sentinels name. */
    async master() {
      const asked = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER_NAME];
      const [, port] = (await (sentinels[0] as RedisServer).command(...asked)) as string[];
      return servers.find((server) => String(server.port) === port) as RedisServer;
    },
  };
}

/**
 * Writes the configuration of a sentinel, which watches the master at this port and needs the word of `quorum` sentinels
 * that it is down; `more` are further lines. Returns the file's path.
 */
export function sentinelFile(masterPort: number, quorum: number, more: readonly string[] = []): string {
  const file = join(redisFolder(), 'sentinel.conf');
  const lines = [`sentinel monitor ${MASTER_NAME} 127.0.0.1 ${masterPort} ${quorum}`, ...more];
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}
