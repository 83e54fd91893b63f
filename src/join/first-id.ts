import { eventWithId } from './log-place.ts';
import type { Run } from './run.ts';
import type { Outlet, OutletSource } from './run-outlet.ts';

/** A run whose readers get the first id once it is stored. */
export interface FirstIdRun {
  readonly run: Pick<Run, 'stream'>;
  /** Who writes the stream. */
  source: OutletSource | undefined;
  /** What waits of the stream, and what ends it after that; undefined if nothing waits. */
  waiting: { readonly bytes: Buffer[]; isInside: boolean; end: (() => void) | undefined } | undefined;
}

/** The outlet of the run's stream. While the stream waits, it keeps what comes. */
export function waitingOutlet(held: FirstIdRun): Outlet {
  const { outlet } = held.run.stream;
  const isWaiting = () => held.waiting !== undefined;
  const end = (work: () => void) => {
    if (held.waiting) held.waiting.end = work;
    else work();
  };
  return {
    open: (source) =>
      outlet.open({
        full: () => source.full(),
        drained() {
          if (!isWaiting()) source.drained();
        },
        // The readers may stand inside an event that the source has ended.
        mayBeat: () => !isWaiting() && source.mayBeat(),
        closed: () => source.closed(),
      }),
    write(bytes, isInside) {
      const { waiting } = held;
      if (!waiting) return outlet.write(bytes, isInside);
      waiting.bytes.push(bytes);
      waiting.isInside = isInside;
    },
    isFull: () => isWaiting() || outlet.isFull(),
    hasBegun: () => isWaiting() || outlet.hasBegun(),
    complete: () => end(() => outlet.complete()),
    endEarly: (problem, isCut) => end(() => outlet.endEarly(problem, isCut)),
  };
}

/** Takes the bytes with the first id. What stands before that event goes down; the rest waits for `releaseWaiting`. */
export function holdBack(held: FirstIdRun, bytes: Buffer, isInside: boolean): void {
  const at = eventWithId(bytes);
  if (at > 0) held.run.stream.outlet.write(bytes.subarray(0, at), false);
  held.waiting = { bytes: [bytes.subarray(at)], isInside, end: undefined };
  held.source?.full();
}

/** Writes what waits, `withEnd` or without, and then asks for more. May be called again. */
export function releaseWaiting(held: FirstIdRun, { withEnd = true } = {}): void {
  const { waiting, run } = held;
  if (!waiting) return;
  held.waiting = undefined;
  const { outlet } = run.stream;
  outlet.write(Buffer.concat(waiting.bytes), waiting.isInside);
  if (withEnd) waiting.end?.();
  // Not at once: more may come from it, and whoever calls may have bytes that stand before that.
  queueMicrotask(() => {
    if (withEnd && !held.waiting && !outlet.isFull()) held.source?.drained();
  });
}
