import { createCluster, ErrorReply } from '@redis/client';
import { type RedisNode, redisAddress } from './redis-address.ts';
import { errorWith, withDeadline } from './redis-errors.ts';
import { askServer, type OpenLink, type RedisLink, type ServerClient } from './redis-link.ts';
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
  return async (over, signal) => {
    const node = await answeringServer(settings, signal);
    signal.throwIfAborted();
    const cluster = clusterClient(settings, { node, signal });
    // Listens before it opens: the loss of a master during that would not be reported later.
    cluster.on('error', over).on('node-error', over);
    cluster.on('node-disconnect', () => over(errorWith('NEWMASTER', 'A master of the cluster was replaced')));
    try {
      return await withDeadline(open(cluster), OPEN_MS);
    } catch (error) {
      cluster.destroy();
      throw error;
    }
  };
}

/** The server of the URL that is the first to answer as one of a cluster that works. */
async function answeringServer(settings: RedisSettings, signal: AbortSignal): Promise<RedisNode> {
  const { tls, url } = settings;
  const asked = redisAddress(url).nodes.map(async (node) => {
    await askServer({ node, tls, user: userOf(url), signal }, requireCluster);
    return node;
  });
  try {
    return await Promise.any(asked);
  } catch (error) {
    const { errors } = error as AggregateError;
    // The answer of a server says more than that others are out of reach.
    throw errors.find((one) => one instanceof ErrorReply) ?? errors[0];
  }
}

type Cluster = ReturnType<typeof clusterClient>;

async function open(cluster: Cluster): Promise<RedisLink> {
  await cluster.connect();
  const servers = () => cluster.masters.flatMap(({ client }) => client ?? []);
  if (servers().length === 0) throw errorWith('CLUSTERDOWN', 'No slot has a master');
  await Promise.all(servers().map(requireCluster));
  return { client: cluster, servers, wrongServer: 'CLUSTERDOWN', close: () => cluster.destroy() };
}

/**
 * A master that has lost the others does not take commands, nor does one while slots are without a master; a server that
 * is in no cluster yet has no slots.
 */
async function requireCluster(one: ServerClient): Promise<void> {
  const info = String(await one.clusterInfo());
  if (!info.includes('cluster_state:ok')) throw new ErrorReply('CLUSTERDOWN The cluster is down');
}

function clusterClient(
  settings: RedisSettings,
  { node, signal }: { readonly node: RedisNode; readonly signal: AbortSignal },
) {
  const { RESP, commandOptions, ...defaults } = connectionOptions(settings, signal);
  return createCluster({
    rootNodes: [{ socket: { host: node.hostname, port: node.port } }],
    defaults: { ...defaults, ...userOf(settings.url) },
    ...{ RESP, commandOptions },
    maxCommandRedirections: MAX_REDIRECTIONS,
  });
}
