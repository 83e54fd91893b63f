import { waitingLines } from './waiting-lines.ts';

/** Who wants to stand in lines for an endpoint: in that of each holder, one after the other. */
export interface LinesWish {
  readonly endpoint: string;
  readonly holders: readonly string[];
}

/**
 * Stands in the lines of all holders until the wish is the first in each; returns what leaves them, or nothing if
 * there is no place before `deadline`, by `performance.now()` in ms. Rejects with the signal's reason if that aborts.
 */
export type StandInLines = (
  wish: LinesWish,
  deadline: number,
  signal: AbortSignal,
) => Promise<(() => void) | undefined>;

/** How much longer than its wait a message may stand behind others for which the budget is asked, in ms. */
const ANSWERS_MS = 500;

/** Lines for endpoints, one for each holder. No more than `longest` of an endpoint stand in one line. */
export function holderLines(longest: (endpoint: string) => number): StandInLines {
  const lines = waitingLines();
  return async function standInLines({ endpoint, holders }, deadline, signal) {
    const left: (() => void)[] = [];
    const leave = () => {
      for (const one of left) one();
    };
    try {
      for (const [n, holder] of holders.entries()) {
        const line = `${holder} ${endpoint}`;
        if (lines.length(line) >= longest(endpoint)) return void leave();
        left.push(await lines.enter(line, n > 0 ? until(deadline, signal) : signal));
      }
      return leave;
    } catch (error) {
      leave();
      if (signal.aborted) throw error;
      return undefined;
    }
  };
}

/**
 * Aborts with `signal`, or soon after `deadline`: in a second line, those who came later and wait for longer may stand
 * in front. Where nobody waits, it is the budget's answers for those in front that take their time.
 */
function until(deadline: number, signal: AbortSignal): AbortSignal {
  const leftMs = Math.ceil(Math.max(0, deadline - performance.now()) + ANSWERS_MS);
  return AbortSignal.any([signal, AbortSignal.timeout(leftMs)]);
}
