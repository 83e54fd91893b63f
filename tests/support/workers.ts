import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { call } from './call.ts';
import { cheapHash } from './cheap-hash.ts';
import { freePort } from './free-port.ts';
import { total } from './metric-samples.ts';
import {
  freshFolder,
  inFrontOf,
  type RelayProcess,
  signInAt,
  startProcess,
  stopProcesses,
} from './process.ts';
import { type RawClient, rawClient, rawMessage } from './raw-client.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from './raw-upstream.ts';
import { type RedisServer, startRedis, stopRedis } from './redis-server.ts';
import { USER } from './relay.ts';
import { sleep } from './sleep.ts';

const USERS = JSON.stringify({ users: [{ name: USER.name, hash: await cheapHash(USER.password) }] });

/** A stream that has begun. */
export interface WorkerStream {
  /** The number of the worker that carries it. */
  readonly worker: number;
  readonly client: RawClient;
  /** Sends the last event and the end. */
  finish(): void;
}

/** A relay with several workers and its own Redis, in front of a bot service whose streams begin and wait. */
export interface WorkersRelay {
  readonly relay: RelayProcess;
  readonly port: number;
  readonly folder: string;
  readonly redis: RedisServer;
  readonly upstream: RawUpstream;
  /** The messages at the bot service, and their times, in ms. */
  readonly arrivals: number[];
  /** The parsed log lines so far that `match` accepts. */
  lines(match: (line: LogLine) => boolean): LogLine[];
  /** Resolves when there are `count` lines that `match` accepts. */
  logged(count: number, match: (line: LogLine) => boolean): Promise<LogLine[]>;
  signIn(): Promise<string>;
  /** Runs `act` while the other workers are suspended, so that its connections reach the worker with this number. */
  reaching<T>(worker: number, act: () => Promise<T>): Promise<T>;
  /** Opens a stream at each of `count` workers; returns the streams by worker number. */
  streamAtEach(count: number, cookie: string): Promise<WorkerStream[]>;
  scrape(): Promise<string>;
}

export type LogLine = Readonly<Record<string, unknown>>;

const clients: RawClient[] = [];
const upstreams: RawUpstream[] = [];
const secrets: string[] = [];

export interface WorkersOptions {
  readonly workers: number;
  readonly environment?: Readonly<Record<string, string>>;
  readonly files?: Readonly<Record<string, string>>;
  readonly nodeArgs?: readonly string[];
  /** What the bot service does with a message; by default the stream begins and waits. */
  readonly onMessage?: (socket: Socket, request: RawRequest) => void;
}

const begin = (socket: Socket) =>
  void socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]));

/** Starts the relay; resolves when all workers listen and are connected to Redis. */
export async function startWorkersRelay(options: WorkersOptions): Promise<WorkersRelay> {
  const { workers, environment = {}, files = {}, nodeArgs = [], onMessage = begin } = options;
  const arrivals: number[] = [];
  const upstream = await startRawUpstream((socket, request) => {
    arrivals.push(performance.now());
    onMessage(socket, request);
  });
  upstreams.push(upstream);
  const redis = await startRedis();
  const metricsPort = await freePort();
  const folder = freshFolder({ 'users.json': USERS, ...files });
  const relay = startProcess({
    folder,
    nodeArgs,
    environment: {
      ...inFrontOf(upstream.url),
      REDIS_URL: redis.url,
      WORKERS: String(workers),
      METRICS_PORT: String(metricsPort),
      ...environment,
    },
  });
  const lines = (match: (line: LogLine) => boolean) => linesOf(relay).filter(match);
  let isOver = false;
  void relay.exited.then(() => {
    isOver = true;
  });
  async function logged(count: number, match: (line: LogLine) => boolean) {
    for (;;) {
      const wasOver = isOver;
      const found = lines(match);
      if (found.length >= count) return found;
      if (wasOver)
        throw new Error(`ended with ${found.length} of ${count} lines; printed: ${relay.stdout()}`);
      await sleep(20);
    }
  }
  const port = await relay.listening();
  // A worker listens when it is connected to Redis.
  await logged(workers, ({ msg }) => msg === 'listening');
  const scrape = async () => (await call(metricsPort, '/metrics')).body;
  const reaching = async <T>(worker: number, act: () => Promise<T>) => {
    const pids = workerPids({ relay });
    pids.delete(worker);
    const stopped = [...pids.values()];
    try {
      await suspend(...stopped);
      return await act();
    } finally {
      // A worker that stays suspended would never end.
      for (const pid of stopped) process.kill(pid, 'SIGCONT');
    }
  };
  return {
    ...{ relay, port, folder, redis, upstream, arrivals, lines, logged, scrape, reaching },
    async signIn() {
      const cookie = await signInAt(port, USER.name, USER.password);
      secrets.push(cookie.slice(cookie.indexOf('=') + 1));
      return cookie;
    },
    async streamAtEach(count, cookie) {
      const streams: WorkerStream[] = [];
      for (let worker = 1; worker <= count; worker += 1) {
        const client = await reaching(worker, async () => {
          const client = rawClient(port, rawMessage({ cookie, headers: ['Connection: close'] }));
          clients.push(client);
          await client.waitFor('data: 1\n\n');
          return client;
        });
        const upstreamSocket = upstream.sockets.at(-1) as Socket;
        const finish = () =>
          void upstreamSocket.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
        streams.push({ worker, client, finish });
      }
      return streams;
    },
  };
}

/** Stops everything; for `afterEach`. */
export async function stopWorkersRelays(): Promise<void> {
  for (const { socket } of clients.splice(0)) socket.destroy();
  await stopProcesses(secrets.splice(0));
  for (const upstream of upstreams.splice(0)) await upstream.close();
  stopRedis();
}

/** The process id of each worker by its number, as the system has them now. */
export function workerPids({ relay }: { readonly relay: Pick<RelayProcess, 'pid'> }): Map<number, number> {
  const children = readFileSync(`/proc/${relay.pid}/task/${relay.pid}/children`, 'utf8');
  const pids = children.split(' ').filter(Boolean).map(Number);
  const workers = new Map<number, number>();
  for (const pid of pids) {
    const number = argsIfAlive(pid).at(-1);
    if (number !== undefined) workers.set(Number(number), pid);
  }
  return workers;
}

/** Suspends processes until they get SIGCONT; resolves when all are suspended. */
export async function suspend(...pids: readonly number[]): Promise<void> {
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  const runs = (pid: number) => !/\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  while (pids.some(runs)) await sleep(1);
}

/** The command line of a process. */
export function argsOf(pid: number): string[] {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
}

/** A process that has ended has no command line, even before its exit code was read. */
function argsIfAlive(pid: number): string[] {
  try {
    return argsOf(pid);
  } catch {
    return [];
  }
}

export const lives = (pid: number): boolean => argsIfAlive(pid).length > 0;

/** How much of the output of a relay is parsed, and its lines: they are asked for again and again. */
const parsed = new WeakMap<RelayProcess, { chars: number; lines: LogLine[] }>();

/** The complete log lines of a relay, parsed. */
export function linesOf(relay: RelayProcess): LogLine[] {
  const known = parsed.get(relay) ?? { chars: 0, lines: [] };
  const text = relay.stdout();
  const end = text.lastIndexOf('\n') + 1;
  const more = text.slice(known.chars, end).split('\n').slice(0, -1);
  for (const line of more) known.lines.push(JSON.parse(line) as LogLine);
  known.chars = Math.max(known.chars, end);
  parsed.set(relay, known);
  return [...known.lines];
}

/** The sum of a metric over the samples of one worker. */
export function ofWorker(text: string, name: string, worker: number): number {
  return total(text, name, { worker: String(worker) });
}
