import { createHash } from 'node:crypto';
import { isNativeError } from 'node:util/types';
import {
  ClientOfflineError,
  ConnectionTimeoutError,
  createClient,
  SocketClosedUnexpectedlyError,
  SocketTimeoutError,
} from 'redis';
import { Problem } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { Secret } from '../secret.ts';

/** How long a command may take, in ms. The client's own timeout ends when a command is written. */
const COMMAND_TIMEOUT_MS = 500;
const CONNECT_TIMEOUT_MS = 2_000;
/** A connection on which nothing comes for this long is dropped; a ping asks for something twice in that time. */
const SILENT_MS = 2_000;
const MAX_RECONNECT_DELAY_MS = 500;

export type RedisClient = ReturnType<typeof clientFor>;

/** The keys and arguments of one run of a script, and what it returned. */
export type RedisScript = (keys: string[], args: string[]) => Promise<unknown>;

/** The one connection of this process to Redis. */
export interface Redis {
  /**
   * Runs commands, which must be done within half a second; nothing waits for a connection that is not there.
   * @throws Problem `session_store_unavailable`, with Redis's or the system's error code as its cause
   */
  run<T>(commands: (client: RedisClient) => Promise<T>): Promise<T>;
  /** A Lua script that takes one round trip to run, and is sent again when Redis has forgotten it. */
  script(lua: string): RedisScript;
  /** Resolves once Redis can be used for the first time, or after `withinMs` without it. */
  ready(withinMs: number): Promise<void>;
  /** Whether Redis answers now; with the deadline of every command. Asked twice at once, it asks Redis once. */
  answers(): Promise<boolean>;
  /**
   * Calls `listener` with every message on the channel, also after Redis was away; what came meanwhile is lost.
   * `onListening` is called whenever messages come from then on: at first, and each time Redis is back.
   */
  subscribe(channel: string, listener: (message: string) => void, onListening?: () => void): Promise<void>;
  /** When Redis last came back after it was lost, by `performance.now()` in ms; it may have forgotten what it knew. */
  backAt(): number | undefined;
  /** Drops the connection. */
  close(): void;
}

export interface RedisOptions {
  /** `redis://` or `rediss://`, with user and password if Redis wants them. */
  readonly url: Secret;
  readonly logger: Logger;
  /** Told of every run: how long it took in ms, and whether it went well. */
  readonly observe?: (ms: number, ok: boolean) => void;
}

/** What every run of commands needs. */
interface Connection {
  readonly client: RedisClient;
  readonly changes: Readonly<Changes>;
  readonly observe: (ms: number, ok: boolean) => void;
}

/** Connects in the background, and again whenever the connection is lost, until `close`. */
export function openRedis({ url, logger, observe = () => {} }: RedisOptions): Redis {
  const client = clientFor(url);
  const changes = logChanges(client, logger);
  // Only `close` ends the attempts.
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

/** Whoever asks while an answer is awaited gets the same one. */
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

/** Resolves once it listens; see `Redis`. */
function subscribe(client: RedisClient, { channel, listener, onListening }: Subscription): Promise<void> {
  return new Promise((resolve) => {
    const listen = async () => {
      // Once this went well, the client repeats it by itself before it calls a new connection ready.
      await client.subscribe(channel, listener);
      onListening?.();
      resolve();
    };
    // Lost again meanwhile: the next connection is the next attempt.
    const attempt = () => void listen().catch(() => {});
    client.on('ready', attempt);
    if (client.isReady) attempt();
  });
}

function clientFor(url: Secret) {
  return createClient({
    url: url.open(),
    // Subscriptions and commands share one connection.
    RESP: 3,
    disableOfflineQueue: true,
    commandOptions: { timeout: 0 },
    pingInterval: SILENT_MS / 2,
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SILENT_MS,
      reconnectStrategy: (retries) => Math.min(50 * 2 ** retries, MAX_RECONNECT_DELAY_MS),
    },
  });
}

interface Changes {
  /** When Redis last came back, by `performance.now()` in ms. */
  backAt: number | undefined;
  /** Why the last connection was lost or not made: what a command without a connection cannot know. */
  lastCause: string;
}

/** One line when Redis is lost and one when it is back, however many attempts lie between. */
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
    timer = setTimeout(() => reject(TIMEOUT), COMMAND_TIMEOUT_MS);
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

/** What went wrong as one word: the system's code, the first word of Redis's error, or the error's class. */
function causeOf(error: unknown): string {
  if (!isNativeError(error)) return 'unknown';
  if (error instanceof SocketTimeoutError || error instanceof ConnectionTimeoutError) return 'TIMEOUT';
  if (error instanceof SocketClosedUnexpectedlyError) return 'CLOSED';
  const { code, message } = error as NodeJS.ErrnoException;
  // The client's own errors all have the name `Error`.
  return code ?? /^[A-Z]{2,}\b/.exec(message)?.[0] ?? error.constructor.name;
}
