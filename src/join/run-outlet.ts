import type { Problem } from '../errors.ts';

/** The side that writes to an outlet. The route makes both sides from those of `relay/message`. */
export interface OutletSource {
  /** The outlet has no more room. */
  full(): void;
  /** It has room again. */
  drained(): void;
  /** Whether a heartbeat may be written now. */
  mayBeat(): boolean;
  /** Nobody takes the stream any more. */
  closed(): void;
  /** What is needed to resume the stream behind what was written; undefined if it cannot be resumed. */
  resumeState?(): unknown;
}

/** Takes a stream: the response of one client, or a run, which gives it to all who read it. */
export interface Outlet {
  /** Begins the stream. Call it once, before all others. */
  open(source: OutletSource): void;
  /** `isInside` tells whether an event, or the end of a line, may go on after these bytes. */
  write(bytes: Buffer, isInside: boolean): void;
  isFull(): boolean;
  /** Whether a byte was written, be it of a heartbeat. */
  hasBegun(): boolean;
  complete(): void;
  /** Ends a stream that cannot go on; if `isCut`, without an error event. */
  endEarly(problem: Problem, isCut: boolean): void;
}
