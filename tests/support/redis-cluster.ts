import { spawnSync } from 'node:child_process';
import { freePort } from './free-port.ts';
import { eventually, type RedisProcess, startProcess } from './redis-process.ts';

/** A cluster of three masters, each with a replica. */
export interface RedisGroup {
  /** With all servers. */
  readonly url: string;
  readonly servers: readonly RedisProcess[];
  /** The server that has this key. */
  masterOf(key: string): Promise<RedisProcess>;
  /** Moves the slot of a key, with all keys in it, to another master. */
  moveSlot(key: string): Promise<void>;
}

/** How long a server may not answer before another one takes its place, in ms. */
const NODE_TIMEOUT_MS = 1_000;
const SLOTS = 16_384;

/** Starts the servers of a cluster and joins them. */
export async function startCluster(): Promise<RedisGroup> {
  const servers: RedisProcess[] = [];
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_MS)];
  for (let n = 0; n < 6; n += 1) {
    const bus = ['--cluster-port', String(await freePort())];
    servers.push(await startProcess(...options, ...bus, '--save', '', '--appendonly', 'no'));
  }
  const hosts = servers.map(({ host }) => host);
  const create = ['--cluster', 'create', ...hosts, '--cluster-replicas', '1', '--cluster-yes'];
  const { status, stdout } = spawnSync('redis-cli', create, { encoding: 'utf8' });
  if (status !== 0) throw new Error(stdout);
  for (const server of servers) await isWhole(server);
  const masterOf = (key: string) => ownerOf(servers, key);
  return {
    url: `redis://${hosts.join(',')}`,
    ...{ servers, masterOf },
    async moveSlot(key) {
      const from = await masterOf(key);
      const others = (await mastersOf(from)).filter((port) => port !== from.port);
      const to = servers.find(({ port }) => port === others[0]) as RedisProcess;
      await move({ slot: String(await from.command('CLUSTER', 'KEYSLOT', key)), from, to });
      for (const port of await mastersOf(from)) {
        const other = servers.find((server) => server.port === port) as RedisProcess;
        const id = String(await to.command('CLUSTER', 'MYID'));
        await other.command(
          'CLUSTER',
          'SETSLOT',
          String(await from.command('CLUSTER', 'KEYSLOT', key)),
          'NODE',
          id,
        );
      }
    },
  };
}

interface Move {
  readonly slot: string;
  readonly from: RedisProcess;
  readonly to: RedisProcess;
}

/** https://redis.io/docs/latest/commands/cluster-setslot/: the keys go one by one, so that both have some of them. */
async function move({ slot, from, to }: Move): Promise<void> {
  const [source, target] = await Promise.all([from, to].map((one) => one.command('CLUSTER', 'MYID')));
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(source));
  await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(target));
  for (;;) {
    const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, '1')) as string[];
    if (keys.length === 0) return;
    for (const key of keys) await from.command('MIGRATE', '127.0.0.1', String(to.port), key, '0', '1000');
  }
}

async function isWhole(server: RedisProcess): Promise<void> {
  await eventually(async () => {
    const info = String(await server.command('CLUSTER', 'INFO'));
    if (!info.includes('cluster_state:ok') || !info.includes(`cluster_slots_ok:${SLOTS}`))
      throw new Error(info);
  });
}

type Slots = [first: number, last: number, master: [host: string, port: number, id: string]][];

async function mastersOf(server: RedisProcess): Promise<number[]> {
  const slots = (await server.command('CLUSTER', 'SLOTS')) as Slots;
  return [...new Set(slots.map(([, , [, port]]) => port))];
}

async function ownerOf(servers: readonly RedisProcess[], key: string): Promise<RedisProcess> {
  for (const server of servers) {
    const slots = (await server.command('CLUSTER', 'SLOTS').catch(() => [])) as Slots;
    if (slots.length === 0) continue;
    const slot = Number(await server.command('CLUSTER', 'KEYSLOT', key));
    const [, , [, port]] = slots.find(([first, last]) => first <= slot && slot <= last) as Slots[number];
    return servers.find((one) => one.port === port) as RedisProcess;
  }
  throw new Error('no server answers');
}
