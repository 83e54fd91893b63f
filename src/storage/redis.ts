import { createHash } from 'node:crypto';
import { isNativeError } from 'node:util/types';
import {
  ClientOfflineError,
  ConnectionTimeoutError,
  createClient,
  SocketClosedUnexpectedlyError,
  SocketTimeoutError,
} from '@redis/client';
import { Problem } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { Secret } from '../secret.ts';
import { type RedisTls, tlsSocket } from './redis-tls.ts';

/** How long a command may take, in ms. The client's own timeout only covers the time until the command is written. */
const COMMAND_TIMEOUT_MS = 500;
const CONNECT_TIMEOUT_MS = 2_000;
/** A silent connection is dropped after this time, in ms. It is long, since a pause of the machine counts as silence. */
const SILENT_MS = 5_000;
const PING_MS = 1_000;
const MAX_RECONNECT_DELAY_MS = 500;

export type RedisClient = ReturnType<typeof clientFor>;

/** The keys and arguments of one run of a script, and what it returned. */
export type RedisScript = (keys: string[], args: string[]) => Promise<unknown>;

/** The one connection of this process to Redis. */
export interface Redis {
  /**
   * Runs commands, which must finish within half a second. Without a connection they fail at once.
   * @throws Problem `session_store_unavailable`, with Redis's or the system's error code as its cause
   */
  run<T>(commands: (client: RedisClient) => Promise<T>): Promise<T>;
  /** Prepares a Lua script. A run takes one round trip; if Redis no longer has the script, it is sent again. */
  script(lua: string): RedisScript;
  /** Resolves when Redis can be used for the first time, or after `withinMs`. */
  ready(withinMs: number): Promise<void>;
  /** Whether Redis answers a ping within the deadline of a command. Calls at the same time share one ping. */
  answers(): Promise<boolean>;
  /**
   * Calls `listener` with every message on the channel, also after a reconnect; messages in between are lost.
   * `onListening` is called each time the subscription begins: at first, and after each reconnect.
   */
  subscribe(channel: string, listener: (message: string) => void, onListening?: () => void): Promise<void>;
  /** When the last reconnect was, by `performance.now()` in ms. Redis may have lost its data before it. */
  backAt(): number | undefined;
  /** Drops the connection. */
  close(): void;
}

/** Where Redis is, and how it is reached. */
export interface RedisSettings {
  /** `redis://` or `rediss://`, with user and password if Redis wants them. */
  readonly url: Secret;
  /** Only with `rediss://`, where it may be left out. */
  readonly tls?: RedisTls | undefined;
}

export interface RedisOptions extends RedisSettings {
  readonly logger: Logger;
  /** Called after every run with its time in ms, and whether it succeeded. */
  readonly observe?: (ms: number, ok: boolean) => void;
}

/** The client, its state and its observer. */
interface Connection {
  readonly client: RedisClient;
  readonly changes: Readonly<Changes>;
  readonly observe: (ms: number, ok: boolean) => void;
}

/** Connects in the background, and again whenever the connection is lost, until `close`. */
export function openRedis({ logger, observe = () => {}, ...settings }: RedisOptions): Redis {
  const client = clientFor(settings);
  const changes = logChanges(client, logger);
  // The client connects again by itself until `close`.
  client.connect().catch(() => {});
  const connection: Connection = { client, changes, observe };
  return {
    run: (commands) => run(connection, commands),
    script: (lua) => scriptOn(connection, lua),
    ready: (withinMs) => firstReady(client, withinMs),
    answers: sharedPing(connection),
    subscribe: (channel, listener, onListening) => subscribe(client, { channel, listener, onListening }),
    backAt: () => changes.backAt,
    close() {
      if (client.isOpen) client.destroy();
    },
  };
}

async function run<T>(
  { client, changes, observe }: Connection,
  commands: (client: RedisClient) => Promise<T>,
): Promise<T> {
  const startedAt = performance.now();
  let ok = false;
  try {
    const result = await withDeadline(commands(client));
    ok = true;
    return result;
  } catch (error) {
    throw unavailable(error instanceof ClientOfflineError ? changes.lastCause : causeOf(error));
  } finally {
    observe(performance.now() - startedAt, ok);
  }
}

function scriptOn(connection: Connection, lua: string): RedisScript {
  const sha = createHash('sha1').update(lua).digest('hex');
  return (keys, args) =>
    run(connection, async (client) => {
      try {
        return await client.evalSha(sha, { keys, arguments: args });
      } catch (error) {
        if (!(error as Error).message.startsWith('NOSCRIPT')) throw error;
        return client.eval(lua, { keys, arguments: args });
      }
    });
}

/** Calls during a ping share its answer. */
function sharedPing(connection: Connection): () => Promise<boolean> {
  let asked: Promise<boolean> | undefined;
  return function answers() {
    asked ??= run(connection, (client) => client.ping())
      .then(
        () => true,
        () => false,
      )
      .finally(() => {
        asked = undefined;
      });
    return asked;
  };
}

function firstReady(client: RedisClient, withinMs: number): Promise<void> {
  return new Promise((resolve) => {
    if (client.isReady) return resolve();
    const late = setTimeout(resolve, withinMs);
    client.once('ready', () => {
      clearTimeout(late);
      resolve();
    });
  });
}

interface Subscription {
  readonly channel: string;
  readonly listener: (message: string) => void;
  readonly onListening?: (() => void) | undefined;
}

/** Resolves when the subscription has begun; see `Redis`. */
function subscribe(client: RedisClient, { channel, listener, onListening }: Subscription): Promise<void> {
  return new Promise((resolve) => {
    const listen = async () => {
      // After the first success the client subscribes again by itself, before it reports a new connection as ready.
      await client.subscribe(channel, listener);
      onListening?.();
      resolve();
    };
    // If the connection is lost again meanwhile, the next one is tried.
    const tryToListen = () => void listen().catch(() => {});
    client.on('ready', tryToListen);
    if (client.isReady) tryToListen();
  });
}

function clientFor({ url, tls }: RedisSettings) {
  return createClient({
    url: url.open(),
    // Subscriptions and commands share one connection.
    RESP: 3,
    disableOfflineQueue: true,
    commandOptions: { timeout: 0 },
    pingInterval: PING_MS,
    // Commands that a user of Redis with few rights may not send, and that the relay does not need.
    disableClientInfo: true,
    maintNotifications: 'disabled',
    socket: {
      ...(tls && tlsSocket(tls)),
      connectTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SILENT_MS,
      reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, MAX_RECONNECT_DELAY_MS),
    },
  });
}

interface Changes {
  /** When Redis last came back, by `performance.now()` in ms. */
  backAt: number | undefined;
  /** Why the last connection was lost or not made. A command without a connection cannot know this. */
  lastCause: string;
}

/** Logs one line when Redis is lost and one when it is back, and none for the attempts in between. */
function logChanges(client: RedisClient, logger: Logger): Readonly<Changes> {
  const changes: Changes = { backAt: undefined, lastCause: 'CONNECTING' };
  let lost = false;
  client.on('error', (error: unknown) => {
    changes.lastCause = causeOf(error);
    if (!lost) logger.error({ cause: changes.lastCause }, 'redis lost');
    lost = true;
  });
  client.on('ready', () => {
    logger.info('redis ready');
    if (lost) changes.backAt = performance.now();
    lost = false;
  });
  return changes;
}

async function withDeadline<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    // In two halves: after a pause of the whole machine in the first one, Redis has the second to answer.
    timer = setTimeout(() => {
      // An answer that has come while this process was busy is read before `setImmediate` calls back.
      timer = setTimeout(() => setImmediate(reject, TIMEOUT), COMMAND_TIMEOUT_MS / 2);
    }, COMMAND_TIMEOUT_MS / 2);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

const TIMEOUT = Object.assign(new Error('Redis took too long'), { code: 'TIMEOUT' });

function unavailable(cause: string): Problem {
  return new Problem('session_store_unavailable', 'Sessions are not available right now; try again.', {
    retryAfter: 1,
    cause,
  });
}

/** The cause of an error in one word: the system's code, the first word of Redis's error, or the error's class. */
function causeOf(error: unknown): string {
  if (!isNativeError(error)) return 'unknown';
  if (error instanceof SocketTimeoutError || error instanceof ConnectionTimeoutError) return 'TIMEOUT';
  if (error instanceof SocketClosedUnexpectedlyError) return 'CLOSED';
  const { code, message } = error as NodeJS.ErrnoException;
  // The client's own errors all have the name `Error`.
  return code ?? /^[A-Z]{2,}\b/.exec(message)?.[0] ?? error.constructor.name;
}
