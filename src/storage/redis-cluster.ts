import { createCluster, RootNodesUnavailableError } from '@redis/client';
import { redisAddress } from './redis-address.ts';
import { errorWith } from './redis-errors.ts';
import type { OpenLink, RedisLink, ServerClient } from './redis-link.ts';
import { connectionOptions, type RedisSettings, userOf } from './redis-settings.ts';

/** How long connecting to all masters may take, in ms. */
const OPEN_MS = 2_000;
/** While slots move, a command may be sent on once or twice. */
const MAX_REDIRECTIONS = 4;

/**
 * Connects to all masters of the cluster. The library follows slots that move between them. The link is lost as soon as
 * one master is, or is a master no more: the next link asks the cluster anew, and has all of them.
 */
export function clusterOf(settings: RedisSettings): OpenLink {
  return async (over) => {
    const cluster = clusterClient(settings);
    let isOpen = false;
    let failure: unknown;
    // Until it is open, the library goes on with the next server of the URL.
    const fail = (error: unknown) => {
      failure = error;
      if (isOpen) over(error);
    };
    cluster.on('error', fail).on('node-error', fail);
    cluster.on('node-disconnect', () => fail(errorWith('MOVED', 'A master of the cluster was replaced')));
    const opening = open(cluster);
    try {
      const link = await inTime(opening);
      isOpen = true;
      return link;
    } catch (error) {
      // What was still on its way may connect after that.
      void opening.catch(() => {}).then(() => cluster.destroy());
      cluster.destroy();
      throw error instanceof RootNodesUnavailableError ? failure : error;
    }
  };
}

type Cluster = ReturnType<typeof clusterClient>;

async function open(cluster: Cluster): Promise<RedisLink> {
  await cluster.connect();
  const servers = () => cluster.masters.flatMap(({ client }) => client ?? []);
  // The library counts as connected without a master that it could not reach.
  if (cluster.masters.some(({ client }) => !client?.isReady)) throw new RootNodesUnavailableError();
  await Promise.all(servers().map(requireCluster));
  return { client: cluster, servers, wrongServer: 'CLUSTERDOWN', close: () => cluster.destroy() };
}

/** A master that has lost the others does not take commands, nor does one while slots are without a master. */
async function requireCluster(master: ServerClient): Promise<void> {
  const info = String(await master.clusterInfo());
  if (!info.includes('cluster_state:ok')) throw errorWith('CLUSTERDOWN', 'The cluster is down');
}

function clusterClient(settings: RedisSettings) {
  const rootNodes = redisAddress(settings.url).nodes.map(({ hostname, port }) => ({
    socket: { host: hostname, port },
  }));
  return createCluster({
    rootNodes,
    defaults: { ...connectionOptions(settings), ...userOf(settings.url) },
    // Subscriptions and commands share one connection.
    RESP: 3,
    commandOptions: { timeout: 0 },
    maxCommandRedirections: MAX_REDIRECTIONS,
  });
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(reject, OPEN_MS, errorWith('TIMEOUT', 'The cluster took too long'));
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
