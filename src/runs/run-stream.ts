import type { Problem } from '../errors.ts';
import type { StreamSink, StreamSource } from '../relay/message/response-sink.ts';
import { type LogBytes, RunLog } from './run-log.ts';
import { RUN_LOST, TOO_SLOW } from './run-problems.ts';

/** How a run's stream has ended: as complete, or with a problem. */
export type StreamEnd =
  | { readonly problem: undefined }
  | { readonly problem: Problem; readonly isCut: boolean };

export interface RunStreamOptions {
  readonly budget: LogBytes;
  /** How many bytes the log keeps. */
  readonly maxBytes: number;
}

/**
 * The stream of one run, which any number of readers get, each at their own speed. It is written as a sink. The fastest
 * reader sets the speed: the stream is full when no reader can take more, and nothing is forgotten before the fastest
 * has it. Without a reader, the stream is full when the log is.
 */
export class RunStream implements StreamSink {
  readonly log: RunLog;
  /** How it has ended; undefined if it has not. */
  ended: StreamEnd | undefined;
  /** Called after each write. */
  onWrite: (() => void) | undefined;
  private readonly maxBytes: number;
  /** In the order in which they have come. It is never changed in place: a loop over it goes on. */
  private readers: readonly LogReader[] = [];
  private source: StreamSource | undefined;
  private hasSentHeartbeat = false;
  /** What readers at other instances can get without this log. */
  private elsewhereUpTo = 0;

  constructor({ budget, maxBytes }: RunStreamOptions) {
    this.log = new RunLog(budget);
    this.maxBytes = maxBytes;
  }

  open(source: StreamSource): void {
    this.source = source;
    if (this.ended) this.closeSource();
  }

  write(bytes: Buffer, isInside: boolean): void {
    const { log } = this;
    const before = log.end;
    const isKept = log.push(bytes, isInside);
    const ready = this.readers.filter((reader) => reader.at === before && !reader.isFull);
    for (const reader of ready) reader.give(bytes, isInside);
    if (!isKept) {
      if (ready.length === 0) this.giveToFastest(bytes, isInside);
      log.drop();
    }
    if (!isKept || log.bytes > this.maxBytes) this.trim();
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
    // One that has closed already is gone.
    if (!this.readers.includes(reader)) return reader;
    if (this.ended) reader.finish(this.ended);
    else reader.giveUntilFull();
    return reader;
  }

  /** Readers at other instances have what they need up to this offset; 0 if there are none. */
  takenElsewhere(upTo: number): void {
    this.elsewhereUpTo = upTo;
    if (this.log.bytes >= this.maxBytes) this.trim(this.maxBytes - 1);
    if (!this.isFull()) this.source?.drained();
  }

  /** Nobody wants it any more: it need not go on. The caller ends those who still read it. */
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

  /** A reader can take more, or can not. */
  speedChanged(): void {
    if (this.isFull()) this.source?.full();
    else this.source?.drained();
  }

  /** Forgets what is too much for the log, and ends those who have not got it. */
  trim(maxBytes = this.maxBytes): void {
    const { log, elsewhereUpTo } = this;
    log.trim(maxBytes, Math.max(elsewhereUpTo, ...this.readers.map(({ at }) => at)));
    for (const reader of this.readers) if (reader.at < log.start) reader.end(TOO_SLOW);
  }

  /** Gives what is not kept to those who have got most, though they can't take more now. */
  private giveToFastest(bytes: Buffer, isInside: boolean): void {
    const fastest = Math.max(0, ...this.readers.map(({ at }) => at));
    for (const reader of this.readers) {
      if (reader.at < fastest) continue;
      reader.giveKept();
      reader.give(bytes, isInside);
    }
  }

  private end(ended: StreamEnd): void {
    if (this.ended) return;
    this.ended = ended;
    for (const reader of this.readers) reader.finish(ended);
    this.closeSource();
  }

  /** Tells the source once. A run that is kept must not keep what has carried it. */
  private closeSource(): void {
    const { source } = this;
    this.source = undefined;
    source?.closed();
  }
}

/** One who reads a run's stream. */
export interface StreamReader {
  /** Whether it has got all that it will get. */
  readonly hasEnd: boolean;
  /** Ends this reader's stream with `problem`; the others go on. */
  end(problem: Problem): void;
  /** Cuts what it has not taken yet of a stream that has ended. */
  cut(problem: Problem): void;
}

/** It is the source of its sink. */
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
    this.giveKept();
    // What it lacks is not kept.
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

  giveKept(): void {
    const { log } = this.stream;
    for (let part = log.read(this.at); part; part = log.read(this.at)) this.give(part.bytes, part.isInside);
  }

  /** Gives what the log has, as long as it can be taken. */
  giveUntilFull(): void {
    const { stream } = this;
    for (let part = stream.log.read(this.at); part && !this.isFull; part = stream.log.read(this.at)) {
      this.give(part.bytes, part.isInside);
      // It tells `full` at once.
      this.isFull = this.sink.isFull();
    }
    stream.trim();
    stream.speedChanged();
  }
}
