import { Problem } from '../errors.ts';
import { dropLog, pushToLog, type RunLog, readLog, startOfLog, trimLog } from './run-log.ts';
import type { Outlet, OutletSource } from './run-outlet.ts';
import {
  addReader,
  areFull,
  furthest,
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

interface State extends RunStreamOptions, StreamReaders {
  source: OutletSource | undefined;
  hasSentHeartbeat: boolean;
  isAbandoned: boolean;
  end: StreamEnd | undefined;
}

/** What ends a reader. Its run goes on, but what this reader has not got is not there any more. */
const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/**
 * The fastest reader sets the speed: the stream is full when no reader can take more, and nothing is forgotten before
 * the fastest has it. Without a reader, the stream is full when the log is.
 */
export function runStream({ log, maxBytes }: RunStreamOptions): RunStream {
  const state: State = {
    log,
    maxBytes,
    first: undefined,
    source: undefined,
    hasSentHeartbeat: false,
    isAbandoned: false,
    end: undefined,
  };
  return {
    outlet: {
      open(source) {
        state.source = source;
        if (state.isAbandoned) closeSource(state);
      },
      write: (bytes, isInside) => write(state, bytes, isInside),
      isFull: () => isFull(state),
      hasBegun: () => state.hasSentHeartbeat || log.end > 0 || haveBegun(state),
      complete: () => end(state, { problem: undefined }),
      endEarly: (problem, isCut) => end(state, { problem, isCut }),
    },
    read: (outlet, at, closed) => read(state, addReader(state, outlet, at), closed),
    ended: () => state.end,
    abandon() {
      state.isAbandoned = true;
      closeSource(state);
    },
  };
}

function isFull(state: State): boolean {
  return state.first ? areFull(state) : state.log.bytes >= state.maxBytes;
}

function write(state: State, bytes: Buffer, isInside: boolean): void {
  const { log, maxBytes } = state;
  const before = log.end;
  const isKept = pushToLog(log, bytes, isInside);
  let isGiven = false;
  for (let reader = state.first; reader; reader = reader.next) {
    if (reader.at !== before || reader.isFull || !reader.isReading) continue;
    give(reader, bytes, isInside);
    isGiven = true;
  }
  if (!isKept) {
    if (!isGiven) giveToFastest(state, bytes, isInside);
    dropLog(log);
  }
  if (!isKept || log.bytes > maxBytes) trim(state);
  if (isFull(state)) state.source?.full();
}

function give(reader: StreamReader, bytes: Buffer, isInside: boolean): void {
  reader.outlet.write(bytes, isInside);
  reader.at += bytes.length;
  reader.isInside = isInside;
}

/** Gives what is not kept to those who have got most, though they can't take more now. */
function giveToFastest(state: State, bytes: Buffer, isInside: boolean): void {
  const fastest = furthest(state);
  for (let reader = state.first; reader; reader = reader.next) {
    if (reader.at < fastest || !reader.isReading) continue;
    giveKept(reader, state.log);
    give(reader, bytes, isInside);
  }
}

/** Gives all that the log has for this reader. */
function giveKept(reader: StreamReader, log: RunLog): void {
  for (let part = readLog(log, reader.at); part; part = readLog(log, reader.at)) {
    give(reader, part.bytes, part.isInside);
  }
}

/** Forgets what is too much for the log, and ends those who have not got it. */
function trim(state: State): void {
  const { log, maxBytes } = state;
  trimLog(log, maxBytes, furthest(state));
  const start = startOfLog(log);
  for (let reader = state.first; reader; reader = reader.next) {
    if (reader.at < start) endReader(state, reader, TOO_SLOW);
  }
}

function endReader(state: State, reader: StreamReader, problem: Problem): void {
  if (!removeReader(state, reader)) return;
  reader.outlet.endEarly(problem, reader.isInside);
  // It may have been the only one with room.
  if (isFull(state)) state.source?.full();
}

/** Gives what the log has for this reader, as long as that can take it. */
function giveUntilFull(state: State, reader: StreamReader): void {
  const { log } = state;
  while (!reader.isFull) {
    const part = readLog(log, reader.at);
    if (!part) break;
    give(reader, part.bytes, part.isInside);
    // It tells `full` at once.
    reader.outlet.isFull();
  }
  if (log.bytes > state.maxBytes) trim(state);
  if (!reader.isFull) state.source?.drained();
}

function read(state: State, reader: StreamReader, closed: () => void): Reader {
  const { log } = state;
  reader.outlet.open({
    full() {
      reader.isFull = true;
      if (isFull(state)) state.source?.full();
    },
    drained() {
      reader.isFull = false;
      if (reader.isReading && !state.end) giveUntilFull(state, reader);
    },
    mayBeat: () =>
      reader.isReading && !state.end && reader.at === log.end && state.source?.mayBeat() === true,
    closed() {
      state.hasSentHeartbeat ||= reader.outlet.hasBegun();
      removeReader(state, reader);
      if (isFull(state)) state.source?.full();
      else state.source?.drained();
      closed();
    },
  });
  // One that has closed already is gone.
  if (reader.isReading) {
    if (state.end) finish(reader, log, state.end);
    else giveUntilFull(state, reader);
  }
  return {
    end(problem) {
      if (!state.end) endReader(state, reader, problem);
      // It has all, but may take it slowly, and nobody counts the bytes that wait for it any more.
      else if (reader.isReading) reader.outlet.endEarly(problem, true);
    },
  };
}

function end(state: State, how: StreamEnd): void {
  state.end = how;
  for (let reader = state.first; reader; reader = reader.next) {
    if (reader.isReading) finish(reader, state.log, how);
  }
  closeSource(state);
}

/** Tells the source once. A run that is kept must not keep what has carried it. */
function closeSource(state: State): void {
  const { source } = state;
  state.source = undefined;
  source?.closed();
}

/** Gives all that is missing, and the end. */
function finish(reader: StreamReader, log: RunLog, how: StreamEnd): void {
  giveKept(reader, log);
  if (how.problem) reader.outlet.endEarly(how.problem, how.isCut);
  else reader.outlet.complete();
}
