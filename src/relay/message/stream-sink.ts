import type { Problem } from '../../errors.ts';

/** The side of a sink that writes to it. */
export interface StreamSource {
  /** There is no more room: nothing should be read until `drained`. What is on its way is still taken. */
  full(): void;
  /** There is room again. */
  drained(): void;
  /** Whether a heartbeat may be written now: the stream stands between two lines, and outside of an event. */
  mayBeat(): boolean;
  /** Nobody takes the stream any more. Called once, whatever has ended it. */
  closed(): void;
}

/** Takes one stream, whose bytes are already what goes down. */
export interface StreamSink {
  /** Begins the stream. Call it once, before all others. */
  open(source: StreamSource): void;
  /** `isInside` tells whether an event, or the end of a line, may go on after these bytes. */
  write(bytes: Buffer, isInside: boolean): void;
  isFull(): boolean;
  /** Whether a byte was written, be it of a heartbeat. */
  hasBegun(): boolean;
  /** Ends the stream as complete. */
  complete(): void;
  /** Ends a stream that cannot go on; if `isCut`, without an error event, since it stands inside an event. */
  endEarly(problem: Problem, isCut: boolean): void;
}
