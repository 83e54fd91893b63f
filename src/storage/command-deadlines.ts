import { TIMEOUT } from './redis-errors.ts';

/** How often the timer fires in the time that a command has. */
const TICKS = 10;

/** A command that has no answer yet. */
interface Pending {
  /** By the clock of the ticks. */
  readonly dueAt: number;
  readonly reject: (error: unknown) => void;
}

/** Starts a command; rejects as it does, and if its answer takes longer than a command may. */
export type WithinDeadline = <T>(command: () => Promise<T>) => Promise<T>;

/**
 * Makes deadlines of `ms` for commands; each is noticed at most a tenth later. One timer serves all, and runs only while
 * there are some. Between two of its ticks, half of the deadline passes at most: after a pause of the whole machine,
 * Redis has the other half to answer.
 */
export function commandDeadlines(ms: number): WithinDeadline {
  const pending = new Set<Pending>();
  const clock = clockOfTicks(ms / 2);
  let timer: NodeJS.Timeout | undefined;

  function expire(one: Pending): void {
    pending.delete(one);
    one.reject(TIMEOUT);
  }

  function tick(): void {
    // The timer ends here and not with the last command, since the next one nearly always comes before the next tick.
    if (pending.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
    const time = clock.tick();
    for (const one of pending) {
      // An answer that has come while this process was busy is read before `setImmediate` calls back.
      if (one.dueAt <= time) setImmediate(expire, one);
    }
  }

  function startTimer(): NodeJS.Timeout {
    clock.tick();
    // The connection keeps the process alive as long as an answer can come.
    return setInterval(tick, ms / TICKS).unref();
  }

  return (command) =>
    new Promise((resolve, reject) => {
      const work = command();
      timer ??= startTimer();
      const one: Pending = { dueAt: clock.now() + ms, reject };
      pending.add(one);
      work.then(
        (result) => {
          pending.delete(one);
          resolve(result);
        },
        (error) => {
          pending.delete(one);
          reject(error);
        },
      );
    });
}

/** A clock in ms that goes on by `maxMs` at most between two ticks. */
function clockOfTicks(maxMs: number) {
  let time = 0;
  let tickedAt = performance.now();
  const now = () => time + Math.min(performance.now() - tickedAt, maxMs);
  return {
    now,
    /** Returns the time. */
    tick(): number {
      time = now();
      tickedAt = performance.now();
      return time;
    },
  };
}
