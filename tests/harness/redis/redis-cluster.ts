import { spawnSync } from 'node:child_process';
import { eventually } from '../clock/until.ts';
import { freePort } from '../relay/free-port.ts';
import { type RedisServer, startRedis } from './redis-server.ts';

/** How long a server may not answer before another one takes its place, in ms. */
const NODE_TIMEOUT_MS = 1_000;
const SLOTS = 16_384;

export type RedisGroup = Awaited<ReturnType<typeof startCluster>>;

/** Starts a cluster of three masters, each with a replica. */
export async function startCluster() {
  const servers: RedisServer[] = [];
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT_MS)];
  for (let n = 0; n < 6; n += 1) {
    const bus = ['--cluster-port', String(await freePort())];
    servers.push(await startRedis(...options, ...bus));
  }
  const hosts = servers.map(({ host }) => host);
  const create = ['--cluster', 'create', ...hosts, '--cluster-replicas', '1', '--cluster-yes'];
  const { status, stdout } = spawnSync('redis-cli', create, { encoding: 'utf8', timeout: 20_000 });
  if (status !== 0) throw new Error(stdout);
  for (const server of servers) await isWhole(server);
  /** The server that has this key. */
  const masterOf = (key: string) => ownerOf(servers, key);
  return {
    /** With all servers. */
    url: `redis://${hosts.join(',')}`,
    ...{ servers, masterOf },
    /** Moves the slot of a key, with all keys in it, to another master. */
    async moveSlot(key: string) {
      const from = await masterOf(key);
      const ports = await mastersOf(from);
      const masters = servers.filter(({ port }) => ports.includes(port));
      const to = masters.find((master) => master !== from) as RedisServer;
      const slot = String(await from.command('CLUSTER', 'KEYSLOT', key));
      await moveKeys({ slot, from, to });
      const id = String(await to.command('CLUSTER', 'MYID'));
      // The new owner first: nobody must be sent to and fro.
      for (const one of new Set([to, from, ...masters]))
        await one.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
    },
  };
}

interface Move {
  readonly slot: string;
  readonly from: RedisServer;
  readonly to: RedisServer;
}

/** https://redis.io/docs/latest/commands/cluster-setslot/: the keys go one by one, so that both have some of them. */
async function moveKeys({ slot, from, to }: Move): Promise<void> {
  const [source, target] = await Promise.all([from, to].map((one) => one.command('CLUSTER', 'MYID')));
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(source));
  await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(target));
  for (;;) {
    const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, '1')) as string[];
    if (keys.length === 0) return;
    for (const key of keys) await from.command('MIGRATE', '127.0.0.1', String(to.port), key, '0', '5000');
  }
}

async function isWhole(server: RedisServer): Promise<void> {
  await eventually(async () => {
    const info = String(await server.command('CLUSTER', 'INFO'));
    const replication = String(await server.command('INFO', 'replication'));
    // A replica that has nothing yet cannot take over.
    if (!/state=online|master_link_status:up/.test(replication)) throw new Error(replication);
    if (!info.includes('cluster_state:ok') || !info.includes(`cluster_slots_ok:${SLOTS}`))
      throw new Error(info);
  });
}

type Slots = [first: number, last: number, master: [host: string, port: number, id: string]][];

async function mastersOf(server: RedisServer): Promise<number[]> {
  const slots = (await server.command('CLUSTER', 'SLOTS')) as Slots;
  return [...new Set(slots.map(([, , [, port]]) => port))];
}

async function ownerOf(servers: readonly RedisServer[], key: string): Promise<RedisServer> {
  for (const server of servers) {
    const slots = (await server.command('CLUSTER', 'SLOTS').catch(() => [])) as Slots;
    if (slots.length === 0) continue;
    const slot = Number(await server.command('CLUSTER', 'KEYSLOT', key));
    const [, , [, port]] = slots.find(([first, last]) => first <= slot && slot <= last) as Slots[number];
    return servers.find((one) => one.port === port) as RedisServer;
  }
  throw new Error('no server answers');
}
