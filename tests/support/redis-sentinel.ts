import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, type RedisProcess, startProcess } from './redis-process.ts';

/** A master with a replica, and three sentinels that watch it. */
export interface SentinelGroup {
  /** With the three sentinels. */
  readonly url: string;
  readonly sentinels: readonly RedisProcess[];
  readonly servers: readonly RedisProcess[];
  /** The server that the sentinels name. */
  master(): Promise<RedisProcess>;
}

export const MASTER_NAME = 'relays';
/** How long the master may not answer before another one takes its place, in ms. */
const DOWN_MS = 1_000;

/** Starts the servers and the sentinels. `more` are lines of the sentinels' configuration. */
export async function startSentinels(...more: string[]): Promise<SentinelGroup> {
  const options = ['--save', '', '--appendonly', 'no', '--repl-diskless-sync-delay', '0'];
  const first = await startProcess(...options);
  const replicaOf = ['--replicaof', `127.0.0.1 ${first.port}`];
  const servers = [first, await startProcess(...options, ...replicaOf)];
  await eventually(async () => {
    if (!String(await first.command('INFO', 'replication')).includes('state=online'))
      throw new Error('not yet');
  });
  const sentinels: RedisProcess[] = [];
  for (let n = 0; n < 3; n += 1) sentinels.push(await startSentinel(first.port, more));
  // All know each other, and the replica.
  for (const sentinel of sentinels) {
    await eventually(async () => {
      const info = String(await sentinel.command('INFO', 'sentinel'));
      if (!info.includes('slaves=1,sentinels=3')) throw new Error('not yet');
    });
  }
  return {
    url: `redis://${sentinels.map(({ host }) => host).join(',')}`,
    ...{ sentinels, servers },
    async master() {
      const asked = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', MASTER_NAME];
      const [, port] = (await (sentinels[0] as RedisProcess).command(...asked)) as string[];
      return servers.find((server) => String(server.port) === port) as RedisProcess;
    },
  };
}

async function startSentinel(masterPort: number, more: readonly string[]): Promise<RedisProcess> {
  const file = join(tmpdir(), `bot-relay-sentinel-${randomUUID()}.conf`);
  const lines = [
    `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${masterPort} 2`,
    `sentinel down-after-milliseconds ${MASTER_NAME} ${DOWN_MS}`,
    `sentinel failover-timeout ${MASTER_NAME} 10000`,
    ...more,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  return startProcess(file, '--sentinel');
}
