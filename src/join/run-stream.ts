import { Problem } from '../errors.ts';
import type { LogPart, RunLog } from './run-log.ts';
import type { Outlet, OutletSource } from './run-outlet.ts';

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

interface ReaderState {
  readonly outlet: Outlet;
  /** The offset up to which it has got the stream. */
  at: number;
  isFull: boolean;
  /** Whether that is inside an event. */
  isInside: boolean;
}

interface State extends RunStreamOptions {
  readonly readers: Set<ReaderState>;
  source: OutletSource | undefined;
  hasBeaten: boolean;
  isAbandoned: boolean;
  end: StreamEnd | undefined;
}

/** What ends a reader. Its run goes on, but what this reader has not got is not there any more. */
const TOO_SLOW = new Problem('reader_too_slow', 'This reader fell too far behind the answer.');

/**
 * The fastest reader sets the speed: the stream is full when no reader can take more, and nothing is forgotten before
 * the fastest has it. Without a reader, the stream is full when the log is.
 */
export function runStream(options: RunStreamOptions): RunStream {
  const state: State = {
    ...options,
    readers: new Set(),
    source: undefined,
    hasBeaten: false,
    isAbandoned: false,
    end: undefined,
  };
  const { log, readers } = state;
  return {
    outlet: {
      open(source) {
        state.source = source;
        if (state.isAbandoned) closeSource(state);
      },
      write: (bytes) => write(state, bytes),
      isFull: () => isFull(state),
      hasBegun: () =>
        state.hasBeaten || log.end() > 0 || [...readers].some(({ outlet }) => outlet.hasBegun()),
      complete: () => end(state, { problem: undefined }),
      endEarly: (problem, isCut) => end(state, { problem, isCut }),
    },
    read: (outlet, at, closed) => read(state, { outlet, at, isFull: false, isInside: false }, closed),
    ended: () => state.end,
    abandon() {
      state.isAbandoned = true;
      closeSource(state);
    },
  };
}

function isFull({ readers, log, maxBytes }: State): boolean {
  if (readers.size === 0) return log.bytes() >= maxBytes;
  for (const reader of readers) if (!reader.isFull) return false;
  return true;
}

function write(state: State, bytes: Buffer): void {
  const { log, readers, source, maxBytes } = state;
  const before = log.end();
  const part = { bytes, isInside: source?.mayBeat() === false };
  const isKept = log.push(bytes, part.isInside);
  let isGiven = false;
  for (const reader of readers) {
    if (reader.at !== before || reader.isFull) continue;
    give(reader, part);
    isGiven = true;
  }
  if (!isKept) {
    if (!isGiven) giveToFastest(state, part);
    log.close();
  }
  if (!isKept || log.bytes() > maxBytes) trim(state);
  if (isFull(state)) source?.full();
}

function give(reader: ReaderState, { bytes, isInside }: LogPart): void {
  reader.outlet.write(bytes);
  reader.at += bytes.length;
  reader.isInside = isInside;
}

/** Gives what is not kept to those who have got most, though they can't take more now. */
function giveToFastest({ log, readers }: State, part: LogPart): void {
  const fastest = furthest(readers);
  for (const reader of readers) {
    if (reader.at < fastest) continue;
    giveKept(reader, log);
    give(reader, part);
  }
}

/** Gives all that the log has for this reader. */
function giveKept(reader: ReaderState, log: RunLog): void {
  for (let part = log.read(reader.at); part; part = log.read(reader.at)) give(reader, part);
}

function furthest(readers: Iterable<ReaderState>): number {
  let most = 0;
  for (const { at } of readers) most = Math.max(most, at);
  return most;
}

/** Forgets what is too much for the log, and ends those who have not got it. */
function trim(state: State): void {
  const { log, readers, maxBytes } = state;
  log.trim(maxBytes, furthest(readers));
  const start = log.start();
  for (const reader of readers) if (reader.at < start) endReader(state, reader, TOO_SLOW);
}

function endReader(state: State, reader: ReaderState, problem: Problem): void {
  if (!state.readers.delete(reader)) return;
  reader.outlet.endEarly(problem, reader.isInside);
  // It may have been the only one with room.
  if (isFull(state)) state.source?.full();
}

/** Gives what the log has for this reader, as long as that can take it. */
function pump(state: State, reader: ReaderState): void {
  const { log } = state;
  while (!reader.isFull) {
    const part = log.read(reader.at);
    if (!part) break;
    give(reader, part);
    // It tells `full` at once.
    reader.outlet.isFull();
  }
  if (log.bytes() > state.maxBytes) trim(state);
  if (!reader.isFull) state.source?.drained();
}

function read(state: State, reader: ReaderState, closed: () => void): Reader {
  const { readers, log } = state;
  readers.add(reader);
  reader.outlet.open({
    full() {
      reader.isFull = true;
      if (isFull(state)) state.source?.full();
    },
    drained() {
      reader.isFull = false;
      if (readers.has(reader) && !state.end) pump(state, reader);
    },
    mayBeat: () =>
      readers.has(reader) && !state.end && reader.at === log.end() && state.source?.mayBeat() === true,
    closed() {
      state.hasBeaten ||= reader.outlet.hasBegun();
      readers.delete(reader);
      if (isFull(state)) state.source?.full();
      else state.source?.drained();
      closed();
    },
  });
  // One that has closed already is gone.
  if (readers.has(reader)) {
    if (state.end) finish(reader, log, state.end);
    else pump(state, reader);
  }
  return {
    end(problem) {
      if (!state.end) endReader(state, reader, problem);
      // It has all, but may take it slowly, and nobody counts the bytes that wait for it any more.
      else if (readers.has(reader)) reader.outlet.endEarly(problem, true);
    },
  };
}

function end(state: State, how: StreamEnd): void {
  state.end = how;
  for (const reader of state.readers) finish(reader, state.log, how);
  closeSource(state);
}

/** Tells the source once. A run that is kept must not keep what has carried it. */
function closeSource(state: State): void {
  const { source } = state;
  state.source = undefined;
  source?.closed();
}

/** Gives all that is missing, and the end. */
function finish(reader: ReaderState, log: RunLog, how: StreamEnd): void {
  giveKept(reader, log);
  if (how.problem) reader.outlet.endEarly(how.problem, how.isCut);
  else reader.outlet.complete();
}
