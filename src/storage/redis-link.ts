import { createClient } from '@redis/client';
import { type RedisNode, redisAddress } from './redis-address.ts';
import { withDeadline } from './redis-errors.ts';
import { connectionOptions, type RedisSettings, userOf } from './redis-settings.ts';

/**
 * A client that is never connected. All others are of its class: `createClient` would make a class with all commands for
 * each of them, which takes some ms and 1 MB.
 */
const template = createClient({ RESP: 3 });

/** A connection to one server. */
export type ServerClient = ReturnType<typeof clientFor>;

/** Commands with a key, which a cluster sends to the master that has it; and SCAN, which goes through all masters. */
export type RedisClient = Pick<
  ServerClient,
  | 'decr'
  | 'del'
  | 'eval'
  | 'evalSha'
  | 'get'
  | 'hDel'
  | 'hGet'
  | 'hGetAll'
  | 'scan'
  | 'set'
  | 'zmScore'
  | 'zRem'
  | 'zScore'
>;

/** Redis from a connection to its loss: one server, or all masters of a cluster. */
export interface RedisLink {
  readonly client: RedisClient;
  /** A connection to each server that has keys of its own. Subscriptions are on the first one. */
  servers(): readonly ServerClient[];
  /** An error of Redis that says that the link is to the wrong server, in its first word. */
  readonly wrongServer?: string;
  /** How long after this link was made other processes may still use the server before it, in ms. */
  readonly noticedMs?: number;
  close(): void;
}

/**
 * Connects; rejects if that fails. `over` is called when the link is lost, and maybe also before and after that; it
 * closes the link. `signal` ends all connections of the link, also those that are under way.
 */
export type OpenLink = (over: (error: unknown) => void, signal: AbortSignal) => Promise<RedisLink>;

/** Connects to the one server of the URL. */
export function singleServer(settings: RedisSettings): OpenLink {
  const { nodes, database } = redisAddress(settings.url);
  return (over, signal) => openServer({ ...settings, node: nodes[0] as RedisNode, database, signal }, over);
}

export interface ServerOptions extends RedisSettings {
  readonly node: RedisNode;
  readonly database: number;
  readonly signal: AbortSignal;
}

/** Connects to one server. */
export async function openServer(options: ServerOptions, over: (error: unknown) => void): Promise<RedisLink> {
  const { node, tls, database, url, signal } = options;
  const client = clientFor({ node, tls, user: { ...userOf(url), database }, signal });
  client.on('error', over);
  await client.connect();
  return {
    client,
    servers: () => [client],
    close: () => client.destroy(),
  };
}

/** Connects to one server, asks it something, and leaves it. Each of the first two may take as long as a command. */
export async function askServer<T>(
  options: ClientOptions,
  ask: (server: ServerClient) => Promise<T>,
): Promise<T> {
  options.signal.throwIfAborted();
  const client = clientFor(options);
  // The command and the attempt to connect tell the error, too.
  client.on('error', () => {});
  try {
    await withDeadline(client.connect());
    return await withDeadline(ask(client));
  } finally {
    client.destroy();
  }
}

export interface ClientOptions {
  readonly node: RedisNode;
  readonly tls: RedisSettings['tls'];
  readonly user: { readonly username?: string; readonly password?: string; readonly database?: number };
  readonly signal: AbortSignal;
}

/** Makes the client of one server, which does not connect yet. */
export function clientFor({ node, tls, user, signal }: ClientOptions) {
  const { socket, ...options } = connectionOptions({ tls }, signal);
  return template.duplicate({
    ...options,
    ...user,
    socket: { ...socket, host: node.hostname, port: node.port },
  });
}
