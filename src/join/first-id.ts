import type { Problem } from '../errors.ts';
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
  return new WaitingOutlet(held);
}

/** It is the source of the run's stream, too. A class: closures of each run would take more time and more memory. */
class WaitingOutlet implements Outlet, OutletSource {
  readonly held: FirstIdRun;
  readonly outlet: Outlet;
  source: OutletSource | undefined = undefined;

  constructor(held: FirstIdRun) {
    this.held = held;
    this.outlet = held.run.stream.outlet;
  }

  open(source: OutletSource): void {
    this.source = source;
    this.outlet.open(this);
  }

  write(bytes: Buffer, isInside: boolean): void {
    const { waiting } = this.held;
    if (waiting) {
      waiting.bytes.push(bytes);
      waiting.isInside = isInside;
    } else this.outlet.write(bytes, isInside);
  }

  isFull(): boolean {
    return this.held.waiting !== undefined || this.outlet.isFull();
  }

  hasBegun(): boolean {
    return this.held.waiting !== undefined || this.outlet.hasBegun();
  }

  complete(): void {
    const { held, outlet } = this;
    if (held.waiting) held.waiting.end = () => outlet.complete();
    else outlet.complete();
  }

  endEarly(problem: Problem, isCut: boolean): void {
    const { held, outlet } = this;
    if (held.waiting) held.waiting.end = () => outlet.endEarly(problem, isCut);
    else outlet.endEarly(problem, isCut);
  }

  full(): void {
    this.source?.full();
  }

  drained(): void {
    if (!this.held.waiting) this.source?.drained();
  }

  /** The readers may stand inside an event that the source has ended. */
  mayBeat(): boolean {
    return !this.held.waiting && this.source?.mayBeat() === true;
  }

  closed(): void {
    this.source?.closed();
  }
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
