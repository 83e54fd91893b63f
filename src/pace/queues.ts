/** Queues in which callers wait for their turn, one queue for each key. */
interface Queues {
  /** How many are in the queue, including the one whose turn it is. */
  length(key: string): number;
  /**
   * Resolves when all earlier callers have left, with the function that leaves the queue; call it once. Rejects with
   * the signal's reason if that aborts first.
   */
  enter(key: string, signal: AbortSignal): Promise<() => void>;
}

/** First in, first out; an empty queue takes no memory. */
export function createQueues(): Queues {
  // By key, the callers that wait behind the one whose turn it is.
  const queues = new Map<string, (() => void)[]>();

  function leave(key: string): void {
    const next = queues.get(key)?.shift();
    if (next) next();
    else queues.delete(key);
  }

  return {
    length: (key) => (queues.has(key) ? (queues.get(key)?.length ?? 0) + 1 : 0),
    async enter(key, signal) {
      signal.throwIfAborted();
      const queue = queues.get(key);
      if (queue) await waitForTurn(queue, signal);
      else queues.set(key, []);
      return () => leave(key);
    },
  };
}

/** Waits at the end of `queue` until its entry there is called. Rejects with the signal's reason if that aborts first. */
function waitForTurn(queue: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    // A signal that is already aborted sends no event.
    if (signal.aborted) return reject(signal.reason);
    const giveUp = () => {
      queue.splice(queue.indexOf(proceed), 1);
      reject(signal.reason);
    };
    const proceed = () => {
      signal.removeEventListener('abort', giveUp);
      resolve();
    };
    queue.push(proceed);
    signal.addEventListener('abort', giveUp, { once: true });
  });
}

/** Runs `work` when there is a place for it. Rejects with the signal's reason if that aborts first. */
type RunLimited = <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

/**
 * Makes the function that runs at most `max` pieces of work at a time; the others wait in the order of the calls. It
 * resolves or rejects as the work does.
 */
export function limitConcurrency(max: number): RunLimited {
  const waiting: (() => void)[] = [];
  let freePlaces = max;
  return async function run(work, signal) {
    if (freePlaces > 0) freePlaces -= 1;
    else await waitForTurn(waiting, signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      // The next in the queue gets this place directly, so that a new call cannot overtake it.
      const next = waiting.shift();
      if (next) next();
      else freePlaces += 1;
    }
  };
}
