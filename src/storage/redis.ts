import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ClientOfflineError } from '@redis/client';
import type { Logger } from '../logger.ts';
import { commandDeadlines } from './command-deadlines.ts';
import { clusterOf } from './redis-cluster.ts';
import { keepConnected, type RedisConnection } from './redis-connection.ts';
import { COMMAND_TIMEOUT_MS, causeOf, isOfCommand, isOffline, unavailable } from './redis-errors.ts';
import {
  type OpenLink,
  type RedisClient,
  type RedisLink,
  type ServerClient,
  singleServer,
} from './redis-link.ts';
import { sentinelMaster } from './redis-sentinel.ts';
import type { RedisSettings } from './redis-settings.ts';

/** How long a script waits while its keys move to another server, before it is tried again, in ms. */
const TRY_AGAIN_MS = 10;

/**
 * A server that is silent for so many times as long as a command may take counts as lost. A pause of the machine is
 * shorter.
 */
const SILENT_COMMANDS = 10;

/** The keys and arguments of one run of a script, and what it returned. */
export type RedisScript = (keys: string[], args: string[]) => Promise<unknown>;

/** The one connection of this process to Redis: to one server, to a cluster, or to the master that Sentinel names. */
export interface Redis {
  /**
   * Runs commands, which must finish within `commandTimeoutMs` and a tenth of it; while this process is busy, that is
   * noticed later. Without a connection they fail at once. Each needs a key, by which a cluster finds the server.
   * @throws Problem `session_store_unavailable`, with Redis's or the system's error code as its cause
   */
  run<T>(commands: (client: RedisClient) => Promise<T>): Promise<T>;
  /** Runs commands on each server that has keys of its own, as `run` does: on one, or on each master of a cluster. */
  onEach<T>(commands: (server: ServerClient) => Promise<T>): Promise<T[]>;
  /**
   * Prepares a Lua script. A run takes one round trip; if Redis no longer has the script, it is sent again. All keys of
   * a run are of one hash tag.
   */
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
  /**
   * When all processes have noticed the last reconnect, by `performance.now()` in ms. Redis may have lost its data before
   * that.
   */
  backAt(): number | undefined;
  /** Drops the connection. */
  close(): void;
}

interface RedisOptions extends RedisSettings {
  readonly logger: Logger;
  /** Called after every run with its time in ms, and whether it succeeded. */
  readonly observe?: (ms: number, ok: boolean) => void;
}

/** Runs something on the present link. */
type RunOnLink = <T>(work: (link: RedisLink) => Promise<T>) => Promise<T>;

/** Connects in the background, and again whenever the connection is lost, until `close`. */
export function openRedis({ logger, observe = () => {}, ...settings }: RedisOptions): Redis {
  const { commandTimeoutMs: timeoutMs = COMMAND_TIMEOUT_MS } = settings;
  const silentMs = SILENT_COMMANDS * timeoutMs;
  const connection = keepConnected({ open: openerOf(settings), logger, silentMs });
  const run = runOn(connection, observe, timeoutMs);
  const onEach: Redis['onEach'] = (commands) =>
    run((link) => {
      const servers = link.servers();
      if (servers.length === 0) throw new ClientOfflineError();
      return Promise.all(servers.map(commands));
    });
  return {
    run: (commands) => run(({ client }) => commands(client)),
    onEach,
    script: (lua) => scriptOn(run, lua, timeoutMs),
    ready: (withinMs) => readyWithin(connection, withinMs),
    answers: sharedPing(onEach),
    subscribe(channel, listener, onListening) {
      return new Promise((resolve) => {
        connection.subscribe({
          ...{ channel, listener },
          onListening() {
            onListening?.();
            resolve();
          },
        });
      });
    },
    backAt: () => connection.backAt,
    close: connection.close,
  };
}

function openerOf(settings: RedisSettings): OpenLink {
  if (settings.isCluster) return clusterOf(settings);
  return settings.sentinel ? sentinelMaster(settings, settings.sentinel) : singleServer(settings);
}

function runOn(
  connection: RedisConnection,
  observe: (ms: number, ok: boolean) => void,
  timeoutMs: number,
): RunOnLink {
  const within = commandDeadlines(timeoutMs);
  return (work) => {
    const startedAt = performance.now();
    const { link } = connection;
    return within(() => (link ? work(link) : Promise.reject(new ClientOfflineError()))).then(
      (result) => {
        observe(performance.now() - startedAt, true);
        return result;
      },
      (error) => {
        observe(performance.now() - startedAt, false);
        const isUseless = !isOfCommand(error) || causeOf(error) === link?.wrongServer;
        if (link && isUseless && link === connection.link) connection.drop(error);
        throw unavailable(isOffline(error) ? connection.lastCause : causeOf(error));
      },
    );
  };
}

function scriptOn(run: RunOnLink, lua: string, timeoutMs: number): RedisScript {
  const sha = createHash('sha1').update(lua).digest('hex');
  return (keys, args) =>
    run(async ({ client }) => {
      const startedAt = performance.now();
      for (;;) {
        try {
          return await client.evalSha(sha, { keys, arguments: args });
        } catch (error) {
          const cause = causeOf(error);
          if (cause === 'NOSCRIPT') return client.eval(lua, { keys, arguments: args });
          if (cause !== 'TRYAGAIN' || performance.now() - startedAt > timeoutMs) throw error;
          // The keys of this run are on their way to another server of the cluster.
          await sleep(TRY_AGAIN_MS);
        }
      }
    });
}

function readyWithin({ ready }: RedisConnection, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const late = setTimeout(resolve, ms);
    void ready.then(() => {
      clearTimeout(late);
      resolve();
    });
  });
}

function sharedPing(onEach: Redis['onEach']): () => Promise<boolean> {
  let asked: Promise<boolean> | undefined;
  return function answers() {
    asked ??= onEach((client) => client.ping())
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

/** How long Redis may take to answer, in ms. */
const CONNECT_MS = 3_000;
const PING_EVERY_MS = 50;

/**
 * Resolves when Redis answers; for programs that use Redis as soon as they start.
 * @throws Problem `session_store_unavailable` if it does not answer within 3 seconds
 */
export async function whenConnected(redis: Redis): Promise<void> {
  const deadline = performance.now() + CONNECT_MS;
  for (;;) {
    try {
      await redis.onEach((server) => server.ping());
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(PING_EVERY_MS);
    }
  }
}
