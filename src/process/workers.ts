import cluster, { type Worker } from 'node:cluster';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/environment.ts';
import type { Logger } from '../logger.ts';
import { longestShutdownMs } from './shutdown-times.ts';
import { metricsOf, type StopSignal, tell, tellEnvironment } from './worker-channel.ts';

/** A worker that ends sooner than this after its start, in ms, is not replaced at once. */
const SOON_MS = 10_000;
/**
 * What the first of those costs, in ms, and each of them while there is no other worker; each further one in a row
 * costs twice as much, up to the longest.
 */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

export interface WorkersOptions {
  readonly config: Pick<Config, 'workers' | 'shutdown'>;
  /** The arguments by which the program knows that it is a worker; its number, from 1, comes behind them. */
  readonly args: readonly string[];
  /** What the workers read their configuration from. */
  readonly environment: Environment;
  readonly logger: Logger;
  /**
   * Told with which code this process is to end now: when a worker has ended before it ever listened, its exit code,
   * or 1 if it has none; when one did not stop in order, 1.
   */
  readonly onFailure: (exitCode: number) => void;
}

export interface Workers {
  /** Has all workers read their files now. */
  reload(): void;
  /**
   * Has all workers shut down in order, and replaces none any more; resolves when the last one has ended. What is
   * left when even the longest shutdown is over is killed. If one of them did not end in order, `onFailure` is told.
   */
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
 * Starts the program `config.workers` times more, on the same port: the first worker alone, so that what is wrong with all
 * of them is said once, and the others when it listens. A worker that ends is replaced by one with its number, with
 * growing pauses if that happens again and again. When this process ends in any way, the workers end too.
 *
 * The workers accept from one shared socket, so that what a worker that dies has not accepted is left to the others.
 * When the last one is gone, the socket is closed: what waits in it is reset, and what comes then is refused.
 */
export function startWorkers(options: WorkersOptions): Workers {
  const { config, logger, onFailure } = options;
  // By default this process accepts, and a connection that is on its way to a worker hangs if that one dies or closes.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const staff = filledPlaces(options);
  return {
    reload() {
      for (const worker of present(staff)) tell(worker, { kind: 'reload' });
    },
    async stop(signal) {
      const withinMs = longestShutdownMs(config.shutdown);
      const late = setTimeout(() => {
        killLate(staff.places, { logger, withinMs });
        onFailure(1);
      }, withinMs);
      const gone = letGo(staff);
      for (const place of staff.places) stopOne(place, signal);
      const inOrder = await gone;
      clearTimeout(late);
      if (!inOrder) onFailure(1);
    },
    kill() {
      for (const worker of present(staff)) worker.kill('SIGKILL');
    },
    metrics: () => metricsByNumber(staff.places),
  };
}

/** All places, and how they end. */
interface Staff {
  readonly options: WorkersOptions;
  /** The first of them is filled before the others. */
  readonly places: readonly Place[];
  /** Set once no worker is replaced any more: told when the last one has ended, whether all of them did so in order. */
  onAllGone?: (inOrder: boolean) => void;
  allInOrder: boolean;
}

/** Has a worker in each place, and keeps it so until `letGo` is called. */
function filledPlaces(options: WorkersOptions): Staff {
  const { workers } = options.config;
  const first = emptyPlace(1);
  const others = Array.from({ length: workers - 1 }, (_, at) => emptyPlace(at + 2));
  const staff: Staff = { options, places: [first, ...others], allInOrder: true };
  fill(staff, first);
  return staff;
}

function present({ places }: Staff): Worker[] {
  return places.flatMap(({ worker }) => worker ?? []);
}

function fill(staff: Staff, place: Place): void {
  const [first, ...others] = staff.places;
  Object.assign(place, { startedAt: performance.now(), listens: false, replacing: undefined });
  place.worker = startWorker(staff.options, place.number, {
    listening() {
      const isFirst = place === first && !place.hasListened;
      Object.assign(place, { listens: true, hasListened: true });
      if (isFirst && !staff.onAllGone) for (const other of others) fill(staff, other);
    },
    ended: (how) => ended(staff, place, how),
  });
}

function ended(staff: Staff, place: Place, how: Ending): void {
  const { logger, onFailure } = staff.options;
  const line = { worker: place.number, pid: place.worker?.process.pid, ...how };
  place.worker = undefined;
  if (staff.onAllGone) {
    // Whatever kept it from the end of its shutdown broke its streams.
    const inOrder = !place.listens || how.exitCode === 0;
    if (!inOrder) logger.error(line, 'worker ended');
    staff.allInOrder &&= inOrder;
    if (present(staff).length === 0) staff.onAllGone(staff.allInOrder);
  } else if (place.hasListened) {
    const pause = pauseBefore(place);
    const replacedInMs = present(staff).length === 0 ? Math.min(pause, FIRST_PAUSE_MS) : pause;
    logger[how.exitCode === 0 ? 'warn' : 'error']({ ...line, replacedInMs }, 'worker ended');
    place.replacing = setTimeout(fill, replacedInMs, staff, place);
  } else {
    // One that exits says itself why.
    if (how.exitCode === null) logger.fatal(line, 'worker never listened');
    onFailure(how.exitCode ?? 1);
  }
}

/** Replaces no worker any more; resolves when the last one has ended, with whether all of them did so in order. */
function letGo(staff: Staff): Promise<boolean> {
  return new Promise((resolve) => {
    staff.onAllGone = resolve;
    if (present(staff).length === 0) resolve(true);
  });
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

/** Kills those that have not stopped `withinMs`: one that hangs reads no message, and no signal but this one. */
function killLate(
  places: readonly Place[],
  { logger, withinMs }: { logger: Logger; withinMs: number },
): void {
  for (const { number, worker } of places) {
    if (!worker) continue;
    logger.error({ worker: number, pid: worker.process.pid, withinMs }, 'worker did not stop, killed');
    worker.kill('SIGKILL');
  }
}
