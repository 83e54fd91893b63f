import { type RedisNode, redisAddress } from './redis-address.ts';
import { COMMAND_TIMEOUT_MS, errorWith } from './redis-errors.ts';
import { askServer, type OpenLink, openServer } from './redis-link.ts';
import { type RedisSettings, type SentinelSettings, userOf } from './redis-settings.ts';

/** How often the sentinels are asked whether the master is still the same, in ms. */
const POLL_MS = 1_000;
const MAX_PORT = 65_535;

/**
 * Connects to the master that the sentinels name, as https://redis.io/docs/latest/develop/reference/sentinel-clients/
 * has it. The link is lost with the connection, when the server is no master any more, or when the sentinels name
 * another one. While no sentinel answers, it stays.
 */
export function sentinelMaster(settings: RedisSettings, sentinel: SentinelSettings): OpenLink {
  const masterNow = askSentinels(settings, sentinel);
  const { tls, url } = settings;
  const { database } = redisAddress(url);
  return async (over, signal) => {
    const node = await masterNow(signal, async (named) => {
      const answer = await askServer({ node: named, tls, user: userOf(url), signal }, (one) => one.role());
      if (answer?.role !== 'master')
        throw errorWith('READONLY', 'The sentinel names a server that is no master');
    });
    signal.throwIfAborted();
    const link = await openServer({ ...settings, node, database, signal }, over);
    const poll = setInterval(async () => {
      const { host } = await masterNow(signal).catch(() => node);
      if (host !== node.host) over(errorWith('NEWMASTER', 'There is another master'));
    }, POLL_MS);
    return {
      ...link,
      wrongServer: 'READONLY',
      noticedMs: POLL_MS + COMMAND_TIMEOUT_MS,
      close() {
        clearInterval(poll);
        link.close();
      },
    };
  };
}

type MasterNow = (
  signal: AbortSignal,
  /** Rejects if the server is not of use: then the next sentinel is asked. */
  accept?: (named: RedisNode) => Promise<void>,
) => Promise<RedisNode>;

/** Makes the function that asks one sentinel after the other for the master, first the one that answered last. */
function askSentinels(settings: RedisSettings, sentinel: SentinelSettings): MasterNow {
  const { nodes } = redisAddress(settings.url);
  let first = 0;
  return async function masterNow(signal, accept) {
    let failure: unknown;
    for (const n of nodes.keys()) {
      const at = (first + n) % nodes.length;
      try {
        const named = await masterOf({ ...settings, ...sentinel, node: nodes[at] as RedisNode, signal });
        await accept?.(named);
        first = at;
        return named;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  };
}

interface SentinelQuestion extends SentinelSettings, Pick<RedisSettings, 'tls'> {
  readonly node: RedisNode;
  readonly signal: AbortSignal;
}

async function masterOf({ master, node, tls, user, password, signal }: SentinelQuestion): Promise<RedisNode> {
  const login = {
    ...(user !== undefined && { username: user }),
    ...(password && { password: password.open() }),
  };
  const answer = await askServer({ node, tls, user: login, signal }, (server) =>
    server.sendCommand(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', master]),
  );
  const [hostname = '', port] = Array.isArray(answer) ? answer.map(String) : [];
  const isPort = Number.isInteger(Number(port)) && Number(port) > 0 && Number(port) <= MAX_PORT;
  if (hostname === '' || !isPort) throw errorWith('NOMASTER', `The sentinels know no master ${master}`);
  return { host: `${hostname}:${port}`, hostname, port: Number(port) };
}
