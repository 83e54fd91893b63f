import { type RedisNode, redisAddress } from './redis-address.ts';
import { errorWith, withDeadline } from './redis-errors.ts';
import { clientFor, type OpenLink, openServer, type ServerClient } from './redis-link.ts';
import type { RedisSettings, SentinelSettings } from './redis-settings.ts';

/** How often the sentinels are asked whether the master is still the same, in ms. */
const LOOK_MS = 1_000;

/**
 * Connects to the master that the sentinels name, as https://redis.io/docs/latest/develop/reference/sentinel-clients/
 * has it. The link is lost with the connection, when the server is no master any more, or when the sentinels name
 * another one. While no sentinel answers, it stays.
 */
export function sentinelMaster(settings: RedisSettings, sentinel: SentinelSettings): OpenLink {
  const masterNow = askSentinels(settings, sentinel);
  const { database } = redisAddress(settings.url);
  return async (over) => {
    const node = await masterNow();
    const link = await openServer({ ...settings, node, database }, over);
    const look = setInterval(async () => {
      const { host } = await masterNow().catch(() => node);
      if (host !== node.host) over(errorWith('MOVED', 'There is another master'));
    }, LOOK_MS);
    return {
      ...link,
      wrongServer: 'READONLY',
      close() {
        clearInterval(look);
        link.close();
      },
    };
  };
}

/** Makes the function that asks one sentinel after the other for the master, first the one that answered last. */
function askSentinels(settings: RedisSettings, sentinel: SentinelSettings): () => Promise<RedisNode> {
  const { nodes } = redisAddress(settings.url);
  let first = 0;
  return async function masterNow() {
    let failure: unknown;
    for (const n of nodes.keys()) {
      const at = (first + n) % nodes.length;
      try {
        const master = await masterOf({ ...settings, ...sentinel, node: nodes[at] as RedisNode });
        first = at;
        return master;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  };
}

async function masterOf({
  master,
  node,
  tls,
  user,
  password,
}: SentinelSettings & Pick<RedisSettings, 'tls'> & { readonly node: RedisNode }): Promise<RedisNode> {
  const client: ServerClient = clientFor({
    ...{ node, tls },
    user: { ...(user !== undefined && { username: user }), ...(password && { password: password.open() }) },
  });
  // The command and the attempt to connect tell the error, too.
  client.on('error', () => {});
  try {
    await withDeadline(client.connect());
    const answer = await withDeadline(client.sendCommand(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', master]));
    if (!Array.isArray(answer)) throw errorWith('NOMASTER', `The sentinels know no master ${master}`);
    const [hostname, port] = answer.map(String);
    return { host: `${hostname}:${port}`, hostname: String(hostname), port: Number(port) };
  } finally {
    client.destroy();
  }
}
