import cluster, { type Worker } from 'node:cluster';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { Logger } from '../logger.ts';
import { longestShutdownMs } from './shutdown-times.ts';
import { metricsOf, type StopSignal, sendEnvironment, sendTo } from './worker-channel.ts';
import { printsOfWorkers, workerStdio } from './worker-output.ts';

/** A worker that ends sooner than this after its start, in ms, is replaced only after a pause. */
const EARLY_MS = 10_000;
/**
 * The pause after the first early end, in ms. It doubles with each further early end in a row, up to the maximum; while
 * no other worker runs, it stays at the minimum.
 */
const MIN_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;

export interface WorkersOptions {
  readonly config: Pick<Config, 'workers' | 'shutdown'>;
  /** The arguments that start the program as a worker; its number, from 1, is added. */
  readonly args: readonly string[];
  /** From which the workers read their configuration. */
  readonly environment: Environment;
  readonly logger: Logger;
  /**
   * Called when this process must end, with its exit code: that of a worker that ended before it ever listened (1 if it
   * has none), or 1 if a worker did not stop in order.
   */
  readonly onFailure: (exitCode: number) => void;
}

export interface Workers {
  /** Makes all workers read their files again. */
  reload(): void;
  /**
   * Makes all workers shut down in order and replaces none any more; resolves when the last one has ended. Workers that
   * take longer than the longest shutdown are killed. If a worker did not end in order, `onFailure` is called.
   */
  stop(signal: StopSignal): Promise<void>;
  /** Ends all workers at once. */
  kill(): void;
  /** The metrics of each worker by its number; `undefined` if it does not run or does not answer in time. */
  metrics(): Promise<ReadonlyMap<number, string | undefined>>;
}

/** How a process ended; one of the two is null. */
interface Ending {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/** One worker by its number. When its process ends, another one takes over the number. */
interface Member {
  readonly number: number;
  worker?: Worker | undefined;
  startedAt: number;
  /** Whether any of its processes has listened. */
  hasListened: boolean;
  isListening: boolean;
  /** How many of its processes in a row have ended early. */
  endedEarly: number;
  replacing?: NodeJS.Timeout | undefined;
}

/**
 * Starts the program `config.workers` more times, on the same port. The first worker starts alone, so that an error
 * that all share is reported once; the others start when it listens. A worker that ends is replaced by one with the
 * same number, with growing pauses if this repeats. When this process ends in any way, the workers end too.
 *
 * All workers accept from one shared socket. If a worker dies, the others accept the connections that it has not
 * accepted. When no worker is left, the socket closes: waiting connections are reset, and new ones are refused.
 */
export function startWorkers(options: WorkersOptions): Workers {
  const { config, logger, onFailure } = options;
  // By default the primary accepts and passes connections on; one on its way to a worker that dies would hang.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const pool = startPool(options);
  return {
    reload() {
      for (const worker of runningIn(pool)) sendTo(worker, { kind: 'reload' });
    },
    async stop(signal) {
      const withinMs = longestShutdownMs(config.shutdown);
      const late = setTimeout(() => {
        killLate(pool.members, { logger, withinMs });
        onFailure(1);
      }, withinMs);
      const gone = stopReplacing(pool);
      for (const member of pool.members) stopOne(member, signal);
      const inOrder = await gone;
      clearTimeout(late);
      if (!inOrder) onFailure(1);
    },
    kill() {
      for (const worker of runningIn(pool)) worker.kill('SIGKILL');
    },
    metrics: () => metricsByNumber(pool.members),
  };
}

/** All workers, and how they end. */
interface WorkerPool {
  readonly options: WorkersOptions;
  /** The first of them starts before the others. */
  readonly members: readonly Member[];
  readonly passOnPrints: ReturnType<typeof printsOfWorkers>;
  /** Set when workers are no longer replaced. Called when the last one has ended: whether all ended in order. */
  onAllGone?: (inOrder: boolean) => void;
  allInOrder: boolean;
}

/** Starts the workers, and replaces those that end until `stopReplacing` is called. */
function startPool(options: WorkersOptions): WorkerPool {
  const { workers } = options.config;
  const first = newMember(1);
  const others = Array.from({ length: workers - 1 }, (_, at) => newMember(at + 2));
  const members = [first, ...others];
  const pool: WorkerPool = { options, members, passOnPrints: printsOfWorkers(), allInOrder: true };
  startMember(pool, first);
  return pool;
}

function runningIn({ members }: WorkerPool): Worker[] {
  return members.flatMap(({ worker }) => worker ?? []);
}

function startMember(pool: WorkerPool, member: Member): void {
  const [first, ...others] = pool.members;
  Object.assign(member, { startedAt: performance.now(), isListening: false, replacing: undefined });
  member.worker = startWorker(pool, member.number, {
    listening() {
      const isFirst = member === first && !member.hasListened;
      Object.assign(member, { isListening: true, hasListened: true });
      if (isFirst && !pool.onAllGone) for (const other of others) startMember(pool, other);
    },
    ended: (how) => ended(pool, member, how),
  });
}

function ended(pool: WorkerPool, member: Member, how: Ending): void {
  const { logger, onFailure } = pool.options;
  const line = { worker: member.number, pid: member.worker?.process.pid, ...how };
  member.worker = undefined;
  if (pool.onAllGone) {
    // A worker that did not finish its shutdown has broken its streams.
    const inOrder = !member.isListening || how.exitCode === 0;
    if (!inOrder) logger.error(line, 'worker ended');
    pool.allInOrder &&= inOrder;
    if (runningIn(pool).length === 0) pool.onAllGone(pool.allInOrder);
  } else if (member.hasListened) {
    const pause = pauseBefore(member);
    const replacedInMs = runningIn(pool).length === 0 ? Math.min(pause, MIN_PAUSE_MS) : pause;
    logger[how.exitCode === 0 ? 'warn' : 'error']({ ...line, replacedInMs }, 'worker ended');
    member.replacing = setTimeout(startMember, replacedInMs, pool, member);
  } else {
    // A worker that exits by itself has logged why.
    if (how.exitCode === null) logger.fatal(line, 'worker never listened');
    onFailure(how.exitCode ?? 1);
  }
}

/** Replaces no worker from now on; resolves when the last one has ended: whether all ended in order. */
function stopReplacing(pool: WorkerPool): Promise<boolean> {
  return new Promise((resolve) => {
    pool.onAllGone = resolve;
    if (runningIn(pool).length === 0) resolve(true);
  });
}

interface WorkerEvents {
  listening(): void;
  ended(how: Ending): void;
}

/** Starts the worker with this number; calls `events` when it listens and when it ends. */
function startWorker({ options, passOnPrints }: WorkerPool, number: number, events: WorkerEvents): Worker {
  const { args, environment, logger } = options;
  cluster.setupPrimary({ args: [...args, String(number)], stdio: workerStdio });
  const worker = cluster.fork();
  passOnPrints(worker.process);
  sendEnvironment(worker, environment);
  worker.once('listening', events.listening);
  worker.once('exit', (exitCode: number | null, signal: string | null) =>
    // When all that it has printed is read: this process may exit now.
    worker.process.once('close', () => events.ended({ exitCode, signal })),
  );
  worker.on('error', (err) => {
    logger.error({ worker: number, err }, 'worker failed');
    // A process that could not be started has no exit event.
    if (worker.process.pid === undefined) events.ended({ exitCode: 1, signal: null });
  });
  return worker;
}

async function metricsByNumber(members: readonly Member[]): Promise<ReadonlyMap<number, string | undefined>> {
  const texts = members.map(
    async ({ number, worker }) => [number, worker && (await metricsOf(worker))] as const,
  );
  return new Map(await Promise.all(texts));
}

function newMember(number: number): Member {
  return { number, startedAt: 0, hasListened: false, isListening: false, endedEarly: 0 };
}

/** How long to wait before the worker that has just ended is replaced, in ms. */
function pauseBefore(member: Member): number {
  member.endedEarly = performance.now() - member.startedAt < EARLY_MS ? member.endedEarly + 1 : 0;
  if (member.endedEarly === 0) return 0;
  return Math.min(MIN_PAUSE_MS * 2 ** (member.endedEarly - 1), MAX_PAUSE_MS);
}

function stopOne({ worker, isListening, replacing }: Member, signal: StopSignal): void {
  clearTimeout(replacing);
  if (!worker) return;
  // A message, since a late signal could count as the second one. A worker that does not listen yet has no requests
  // to finish.
  if (isListening) sendTo(worker, { kind: 'stop', signal });
  else worker.kill('SIGTERM');
}

/** Kills the workers that have not stopped within `withinMs`. A worker that hangs handles no other signal. */
function killLate(
  members: readonly Member[],
  { logger, withinMs }: { logger: Logger; withinMs: number },
): void {
  for (const { number, worker } of members) {
    if (!worker) continue;
    logger.error({ worker: number, pid: worker.process.pid, withinMs }, 'worker did not stop, killed');
    worker.kill('SIGKILL');
  }
}
