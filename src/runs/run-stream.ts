import type { Problem } from '../errors.ts';
import type { StreamSink, StreamSource } from '../relay/message/response-sink.ts';
import { type LogBytes, RunLog } from './run-log.ts';
import { RUN_LOST, TOO_SLOW } from './run-problems.ts';

/** How a run's stream has ended: as complete, or with a problem. */
export type StreamEnd =
  | { readonly problem: undefined }
  | { readonly problem: Problem; readonly isCut: boolean };

export interface RunStreamOptions {
  readonly bound: LogBytes;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
}

/**
 * The stream of one run, which any number of readers get, each at their own speed; for its source it is one sink. The
 * fastest reader sets the speed: the stream is full when no reader can take more, and the log drops nothing that the
 * fastest has not got. Without a reader, the stream is full when the log is.
 */
export class RunStream implements StreamSink {
  readonly log: RunLog;
  /** How it has ended; undefined if it has not. */
  ended: StreamEnd | undefined;
  /** Called after each write. */
  onWrite: (() => void) | undefined;
  private readonly maxBytes: number;
  /** In the order in which they have come. The array is never changed: a loop over it stays valid. */
  private readers: readonly LogReader[] = [];
  private source: StreamSource | undefined;
  private hasSentHeartbeat = false;
  /** The offset up to which readers at other instances can get the stream from the store. */
  private elsewhereUpTo = 0;

  constructor({ bound, maxBytes }: RunStreamOptions) {
    this.log = new RunLog(bound);
    this.maxBytes = maxBytes;
  }

  open(source: StreamSource): void {
    this.source = source;
    if (this.ended) this.closeSource();
  }

  write(bytes: Buffer, isInside: boolean): void {
    const { log } = this;
    const before = log.end;
    const isLogged = log.push(bytes, isInside);
    const ready = this.readers.filter((reader) => reader.at === before && !reader.isFull);
    for (const reader of ready) reader.give(bytes, isInside);
    if (!isLogged) {
      if (ready.length === 0) this.giveToFastest(bytes, isInside);
      log.drop();
    }
    if (!isLogged || log.bytes > this.maxBytes) this.trim();
    if (this.isFull()) this.source?.full();
    this.onWrite?.();
  }

  isFull(): boolean {
    const { readers, log } = this;
    return readers.length > 0 ? readers.every(({ isFull }) => isFull) : log.bytes >= this.maxBytes;
  }

  hasBegun(): boolean {
    return this.hasSentHeartbeat || this.log.end > 0 || this.readers.some(({ sink }) => sink.hasBegun());
  }

  /** Whether a heartbeat may be written at the end of what has come. */
  mayBeat(): boolean {
    return !this.ended && this.source?.mayBeat() === true;
  }

  complete(): void {
    this.end({ problem: undefined });
  }

  endEarly(problem: Problem, isCut: boolean): void {
    this.end({ problem, isCut });
  }

  /** Gives the stream from the offset `at` on to `sink`; `closed` is called when that has closed. */
  read(sink: StreamSink, at: number, closed: () => void): StreamReader {
    const reader = new LogReader(this, { sink, at, whenClosed: closed });
    this.readers = [...this.readers, reader];
    sink.open(reader);
    // `open` removes a reader whose sink has closed already.
    if (!this.readers.includes(reader)) return reader;
    if (this.ended) reader.finish(this.ended);
    else reader.giveUntilFull();
    return reader;
  }

  /** Readers at other instances need the log only from this offset on; 0 if there are none. */
  takenElsewhere(upTo: number): void {
    this.elsewhereUpTo = upTo;
    if (this.log.bytes >= this.maxBytes) this.trim(this.maxBytes - 1);
    if (!this.isFull()) this.source?.drained();
  }

  /** Closes the source, since nobody reads the stream any more. */
  abandon(): void {
    this.ended ??= { problem: RUN_LOST, isCut: false };
    this.closeSource();
  }

  /** A reader is gone. */
  remove(reader: LogReader): void {
    this.hasSentHeartbeat ||= reader.sink.hasBegun();
    this.readers = this.readers.filter((one) => one !== reader);
    this.speedChanged();
  }

  /** Call it when a reader can take more, or no more. */
  speedChanged(): void {
    if (this.isFull()) this.source?.full();
    else this.source?.drained();
  }

  /** Drops what is too much for the log, and ends the readers that have not got it. */
  trim(maxBytes = this.maxBytes): void {
    const { log, elsewhereUpTo } = this;
    log.trim(maxBytes, Math.max(elsewhereUpTo, ...this.readers.map(({ at }) => at)));
    for (const reader of this.readers) if (reader.at < log.start) reader.end(TOO_SLOW);
  }

  /** Gives bytes that the log has no room for to the fastest readers, though they can take no more now. */
  private giveToFastest(bytes: Buffer, isInside: boolean): void {
    const fastest = Math.max(0, ...this.readers.map(({ at }) => at));
    for (const reader of this.readers) {
      if (reader.at < fastest) continue;
      reader.giveLogged();
      reader.give(bytes, isInside);
    }
  }

  private end(ended: StreamEnd): void {
    if (this.ended) return;
    this.ended = ended;
    for (const reader of this.readers) reader.finish(ended);
    this.closeSource();
  }

  /** Closes the source once. It is not referenced after that, since the stream may be kept for longer. */
  private closeSource(): void {
    const { source } = this;
    this.log.close();
    this.source = undefined;
    source?.closed();
  }
}

/** A reader of a run's stream, for the run. */
export interface StreamReader {
  /** Whether it has got all that it will get. */
  readonly hasEnd: boolean;
  /** Ends this reader's stream with `problem`; the others go on. */
  end(problem: Problem): void;
  /** Cuts it, if its client has not taken all of a stream that has ended. */
  cut(problem: Problem): void;
}

/** A reader of the log, and the source of its own sink. */
class LogReader implements StreamReader, StreamSource {
  readonly sink: StreamSink;
  /** The offset up to which it has got the stream. */
  at: number;
  isFull = false;
  private readonly stream: RunStream;
  private readonly whenClosed: () => void;
  /** Whether what it has got ends inside an event. */
  private isInside = false;
  hasEnd = false;

  constructor(stream: RunStream, from: Pick<LogReader, 'sink' | 'at'> & { readonly whenClosed: () => void }) {
    this.stream = stream;
    this.sink = from.sink;
    this.at = from.at;
    this.whenClosed = from.whenClosed;
  }

  full(): void {
    this.isFull = true;
    this.stream.speedChanged();
  }

  drained(): void {
    this.isFull = false;
    if (!this.hasEnd) this.giveUntilFull();
  }

  mayBeat(): boolean {
    return !this.hasEnd && this.at === this.stream.log.end && this.stream.mayBeat();
  }

  closed(): void {
    this.hasEnd = true;
    this.stream.remove(this);
    this.whenClosed();
  }

  end(problem: Problem): void {
    this.sink.endEarly(problem, this.isInside);
    this.hasEnd = true;
    this.stream.remove(this);
  }

  cut(problem: Problem): void {
    this.sink.endEarly(problem, true);
  }

  /** Gives all that is missing, and the end. */
  finish(ended: StreamEnd): void {
    if (this.hasEnd) return;
    this.giveLogged();
    // The log has no more of what it lacks.
    if (this.at < this.stream.log.end) {
      this.end(TOO_SLOW);
      return;
    }
    this.hasEnd = true;
    if (ended.problem) this.sink.endEarly(ended.problem, ended.isCut);
    else this.sink.complete();
  }

  give(bytes: Buffer, isInside: boolean): void {
    if (this.hasEnd) return;
    this.sink.write(bytes, isInside);
    this.at += bytes.length;
    this.isInside = isInside;
  }

  giveLogged(): void {
    const { log } = this.stream;
    for (let part = log.lend(this.at); part; part = log.lend(this.at)) this.give(part.bytes, part.isInside);
  }

  /** Gives what the log has, as long as it can be taken. */
  giveUntilFull(): void {
    const { stream } = this;
    for (let part = stream.log.lend(this.at); part && !this.isFull; part = stream.log.lend(this.at)) {
      this.give(part.bytes, part.isInside);
      // The sink would call `full` only at the next tick.
      this.isFull = this.sink.isFull();
    }
    stream.trim();
    stream.speedChanged();
  }
}
