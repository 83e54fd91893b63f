import { Problem } from '../errors.ts';
import { dropLog, pushToLog, type RunLog, readLog, startOfLog, trimLog } from './run-log.ts';
import type { Outlet, OutletSource } from './run-outlet.ts';
import {
  addReader,
  areFull,
  furthest,
  give,
  giveKept,
  haveBegun,
  removeReader,
  type StreamReader,
  type StreamReaders,
} from './run-readers.ts';

/** How a run's stream has ended: as complete, or with a problem. */
export type StreamEnd =
  | { readonly problem: undefined }
  | { readonly problem: Problem; readonly isCut: boolean };

/** One who reads a run, and how far. */
export interface Reader {
  /** Ends this reader's stream with `problem`, or cuts what it has not taken of a whole one; the others go on. */
  end(problem: Problem): void;
}

/** The stream of one run, which any number of readers get, each at their own speed. */
export interface RunStream {
  /** Where the stream is written. */
  readonly outlet: Outlet;
  /** Gives the stream from the offset `at` on to `outlet`; `closed` is called when that has closed. */
  read(outlet: Outlet, at: number, closed: () => void): Reader;
  /** How it has ended; undefined if it has not. */
  ended(): StreamEnd | undefined;
  /** Nobody will read it: it need not go on. */
  abandon(): void;
}

export interface RunStreamOptions {
  readonly log: RunLog;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
}

/** What ends a reader. Its run goes on, but what this reader has not got is not there any more. */
const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/**
 * The fastest reader sets the speed: the stream is full when no reader can take more, and nothing is forgotten before
 * the fastest has it. Without a reader, the stream is full when the log is.
 */
export function runStream({ log, maxBytes }: RunStreamOptions): RunStream {
  return new LoggedStream(log, maxBytes);
}

/** A stream, and its outlet. A class: with closures of each stream, each event would have more to load. */
class LoggedStream implements RunStream, Outlet, StreamReaders {
  readonly log: RunLog;
  readonly maxBytes: number;
  first: StreamReader | undefined = undefined;
  source: OutletSource | undefined = undefined;
  hasSentHeartbeat = false;
  isAbandoned = false;
  endedWith: StreamEnd | undefined = undefined;

  constructor(log: RunLog, maxBytes: number) {
    this.log = log;
    this.maxBytes = maxBytes;
  }

  get outlet(): Outlet {
    return this;
  }

  open(source: OutletSource): void {
    this.source = source;
    if (this.isAbandoned) closeSource(this);
  }

  write(bytes: Buffer, isInside: boolean): void {
    const { log } = this;
    const before = log.end;
    const isKept = pushToLog(log, bytes, isInside);
    let isGiven = false;
    for (let reader = this.first; reader; reader = reader.next) {
      if (reader.at !== before || reader.isFull || !reader.isReading) continue;
      give(reader, bytes, isInside);
      isGiven = true;
    }
    if (!isKept) {
      if (!isGiven) giveToFastest(this, bytes, isInside);
      dropLog(log);
    }
    if (!isKept || log.bytes > this.maxBytes) trim(this);
    if (this.isFull()) this.source?.full();
  }

  isFull(): boolean {
    return this.first ? areFull(this) : this.log.bytes >= this.maxBytes;
  }

  hasBegun(): boolean {
    return this.hasSentHeartbeat || this.log.end > 0 || haveBegun(this);
  }

  complete(): void {
    end(this, { problem: undefined });
  }

  endEarly(problem: Problem, isCut: boolean): void {
    end(this, { problem, isCut });
  }

  read(outlet: Outlet, at: number, closed: () => void): Reader {
    const reader = new LogReader(this, { outlet, at, whenClosed: closed });
    addReader(this, reader);
    outlet.open(reader);
    // One that has closed already is gone.
    if (reader.isReading) {
      if (this.endedWith) finish(reader, this.log, this.endedWith);
      else giveUntilFull(this, reader);
    }
    return reader;
  }

  ended(): StreamEnd | undefined {
    return this.endedWith;
  }

  abandon(): void {
    this.isAbandoned = true;
    closeSource(this);
  }
}

/** One who reads the stream of a log, and for its outlet the source. */
class LogReader implements Reader, StreamReader, OutletSource {
  readonly outlet: Outlet;
  at: number;
  isFull = false;
  isInside = false;
  isReading = true;
  next: StreamReader | undefined = undefined;
  readonly stream: LoggedStream;
  readonly whenClosed: () => void;

  constructor(stream: LoggedStream, from: Pick<LogReader, 'outlet' | 'at' | 'whenClosed'>) {
    this.outlet = from.outlet;
    this.at = from.at;
    this.stream = stream;
    this.whenClosed = from.whenClosed;
  }

  full(): void {
    const { stream } = this;
    this.isFull = true;
    if (stream.isFull()) stream.source?.full();
  }

  drained(): void {
    this.isFull = false;
    if (this.isReading && !this.stream.endedWith) giveUntilFull(this.stream, this);
  }

  mayBeat(): boolean {
    const { log, endedWith, source } = this.stream;
    return this.isReading && !endedWith && this.at === log.end && source?.mayBeat() === true;
  }

  closed(): void {
    const { stream } = this;
    stream.hasSentHeartbeat ||= this.outlet.hasBegun();
    removeReader(stream, this);
    if (stream.isFull()) stream.source?.full();
    else stream.source?.drained();
    this.whenClosed();
  }

  end(problem: Problem): void {
    if (!this.stream.endedWith) endReader(this.stream, this, problem);
    // It has all, but may take it slowly, and nobody counts the bytes that wait for it any more.
    else if (this.isReading) this.outlet.endEarly(problem, true);
  }
}

/** Gives what is not kept to those who have got most, though they can't take more now. */
function giveToFastest(stream: LoggedStream, bytes: Buffer, isInside: boolean): void {
  const fastest = furthest(stream);
  for (let reader = stream.first; reader; reader = reader.next) {
    if (reader.at < fastest || !reader.isReading) continue;
    giveKept(reader, stream.log);
    give(reader, bytes, isInside);
  }
}

/** Forgets what is too much for the log, and ends those who have not got it. */
function trim(stream: LoggedStream): void {
  const { log, maxBytes } = stream;
  trimLog(log, maxBytes, furthest(stream));
  const start = startOfLog(log);
  for (let reader = stream.first; reader; reader = reader.next) {
    if (reader.at < start) endReader(stream, reader, TOO_SLOW);
  }
}

function endReader(stream: LoggedStream, reader: StreamReader, problem: Problem): void {
  if (!removeReader(stream, reader)) return;
  reader.outlet.endEarly(problem, reader.isInside);
  // It may have been the only one with room.
  if (stream.isFull()) stream.source?.full();
}

/** Gives what the log has for this reader, as long as that can take it. */
function giveUntilFull(stream: LoggedStream, reader: StreamReader): void {
  const { log } = stream;
  while (!reader.isFull) {
    const part = readLog(log, reader.at);
    if (!part) break;
    give(reader, part.bytes, part.isInside);
    // It tells `full` at once.
    reader.outlet.isFull();
  }
  if (log.bytes > stream.maxBytes) trim(stream);
  if (!reader.isFull) stream.source?.drained();
}

function end(stream: LoggedStream, endedWith: StreamEnd): void {
  stream.endedWith = endedWith;
  for (let reader = stream.first; reader; reader = reader.next) {
    if (reader.isReading) finish(reader, stream.log, endedWith);
  }
  closeSource(stream);
}

/** Tells the source once. A run that is kept must not keep what has carried it. */
function closeSource(stream: LoggedStream): void {
  const { source } = stream;
  stream.source = undefined;
  source?.closed();
}

/** Gives all that is missing, and the end. */
function finish(reader: StreamReader, log: RunLog, endedWith: StreamEnd): void {
  giveKept(reader, log);
  if (endedWith.problem) reader.outlet.endEarly(endedWith.problem, endedWith.isCut);
  else reader.outlet.complete();
}
