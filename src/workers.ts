import cluster, { type Worker } from 'node:cluster';
import type { Environment } from './config.ts';
import type { Logger } from './logger.ts';
import { metricsOf, type StopSignal, tell, tellEnvironment } from './worker-channel.ts';

/** A worker that ends sooner than this after its start, in ms, is not replaced at once. */
const SOON_MS = 10_000;
/** What the first of those costs, in ms; each further one in a row costs twice as much, up to the longest. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

export interface WorkersOptions {
  readonly count: number;
  /** The arguments by which the program knows that it is a worker; its number, from 1, comes behind them. */
  readonly args: readonly string[];
  /** What the workers read their configuration from. */
  readonly environment: Environment;
  readonly logger: Logger;
  /** Told when a worker has ended before it ever listened: with its exit code, or 1 if it has none. */
  readonly onFailedStart: (exitCode: number) => void;
}

export interface Workers {
  /** Has all workers read their files now. */
  reload(): void;
  /** Has all workers shut down in order, and replaces none any more; resolves when the last one has ended. */
  stop(signal: StopSignal): Promise<void>;
  /** Ends all workers at once. */
  kill(): void;
  /** The metrics of each worker by its number; `undefined` for one that is away or does not answer in time. */
  metrics(): Promise<ReadonlyMap<number, string | undefined>>;
}

/** How a process ended: one of the two is null. */
interface Ending {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/** One of the workers, whichever process it is right now. */
interface Place {
  readonly number: number;
  worker?: Worker | undefined;
  startedAt: number;
  /** Whether one of its processes has ever listened. */
  hasListened: boolean;
  listens: boolean;
  /** How many in a row have ended soon. */
  endedSoon: number;
  replacing?: NodeJS.Timeout | undefined;
}

/**
 * Starts the program `count` times more, on the same port: the first worker alone, so that what is wrong with all
 * of them is said once, and the others when it listens. A worker that ends is replaced by one with its number, with
 * growing pauses if that happens again and again. When this process ends in any way, the workers end too.
 */
export function startWorkers(options: WorkersOptions): Workers {
  const { count, logger, onFailedStart } = options;
  let onAllGone: (() => void) | undefined;
  const places = Array.from({ length: count }, (_, at) => emptyPlace(at + 1));
  const [first, ...others] = places as [Place, ...Place[]];
  const present = () => places.flatMap(({ worker }) => worker ?? []);

  function fill(place: Place): void {
    Object.assign(place, { startedAt: performance.now(), listens: false, replacing: undefined });
    place.worker = startWorker(options, place.number, {
      listening() {
        const isFirst = place === first && !place.hasListened;
        Object.assign(place, { listens: true, hasListened: true });
        if (isFirst && !onAllGone) for (const other of others) fill(other);
      },
      ended: (how) => ended(place, how),
    });
  }

  function ended(place: Place, how: Ending): void {
    const pid = place.worker?.process.pid;
    place.worker = undefined;
    if (onAllGone) {
      if (present().length === 0) onAllGone();
      return;
    }
    if (!place.hasListened) {
      // One that exits says itself why.
      if (how.exitCode === null) logger.fatal({ worker: place.number, pid, ...how }, 'worker never listened');
      onFailedStart(how.exitCode ?? 1);
      return;
    }
    const replacedInMs = pauseBefore(place);
    const level = how.exitCode === 0 ? 'warn' : 'error';
    logger[level]({ worker: place.number, pid, ...how, replacedInMs }, 'worker ended');
    place.replacing = setTimeout(() => fill(place), replacedInMs);
  }

  fill(first);
  return {
    reload() {
      for (const worker of present()) tell(worker, { kind: 'reload' });
    },
    stop(signal) {
      return new Promise((resolve) => {
        onAllGone = resolve;
        for (const place of places) stopOne(place, signal);
        if (present().length === 0) resolve();
      });
    },
    kill() {
      for (const worker of present()) worker.kill('SIGKILL');
    },
    metrics: () => metricsByNumber(places),
  };
}

interface Turns {
  listening(): void;
  ended(how: Ending): void;
}

/** Starts the worker with this number, which tells its `turns`. */
function startWorker({ args, environment, logger }: WorkersOptions, number: number, turns: Turns): Worker {
  cluster.setupPrimary({ args: [...args, String(number)] });
  const worker = cluster.fork();
  tellEnvironment(worker, environment);
  worker.once('listening', turns.listening);
  worker.once('exit', (exitCode: number | null, signal: string | null) => turns.ended({ exitCode, signal }));
  worker.on('error', (err) => {
    logger.error({ worker: number, err }, 'worker failed');
    // One that never came to be has no exit.
    if (worker.process.pid === undefined) turns.ended({ exitCode: 1, signal: null });
  });
  return worker;
}

async function metricsByNumber(places: readonly Place[]): Promise<ReadonlyMap<number, string | undefined>> {
  const texts = places.map(
    async ({ number, worker }) => [number, worker && (await metricsOf(worker))] as const,
  );
  return new Map(await Promise.all(texts));
}

function emptyPlace(number: number): Place {
  return { number, startedAt: 0, hasListened: false, listens: false, endedSoon: 0 };
}

/** How long to wait before the worker that has just ended is replaced, in ms. */
function pauseBefore(place: Place): number {
  place.endedSoon = performance.now() - place.startedAt < SOON_MS ? place.endedSoon + 1 : 0;
  if (place.endedSoon === 0) return 0;
  return Math.min(FIRST_PAUSE_MS * 2 ** (place.endedSoon - 1), LONGEST_PAUSE_MS);
}

function stopOne({ worker, listens, replacing }: Place, signal: StopSignal): void {
  clearTimeout(replacing);
  if (!worker) return;
  // A message cannot be taken for a second press of a key, as a signal could that comes late. One that does not
  // listen has nobody to let finish.
  if (listens) tell(worker, { kind: 'stop', signal });
  else worker.kill('SIGTERM');
}
