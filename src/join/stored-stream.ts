import type { Problem } from '../errors.ts';
import { holdBack, waitingOutlet } from './first-id.ts';
import { type HeldRun, isAwaited, note } from './held-run.ts';
import { LEASE_MS } from './run-calls.ts';
import type { RunFlush } from './run-flush.ts';
import type { Outlet, OutletSource } from './run-outlet.ts';
import type { Reader, RunStream, StreamEnd } from './run-stream.ts';

/** After so long without an answer of Redis, the lease may be lost, in ms. */
const SURE_MS = LEASE_MS - 1_000;

export interface StoredStreamOptions {
  readonly flush: RunFlush;
  /** How many bytes of the run are kept. */
  readonly maxBytes: number;
}

/** The stream of a run that this instance carries, for the one who writes it: what is written is stored, too. */
export interface StoredStream extends RunStream {
  /** Whether it is certain that no other instance has taken the run. */
  isSure(): boolean;
  /** Another instance has the run: what is written from now on is nothing to those who read it. */
  detach(): void;
  isDetached: boolean;
}

/** Makes the stream. */
export function storedStream(held: HeldRun, options: StoredStreamOptions): StoredStream {
  return new LeasedStream(held, options);
}

/** It is its own outlet. A class: closures of each run would take more time and more memory. */
class LeasedStream implements StoredStream, Outlet {
  readonly held: HeldRun;
  readonly options: StoredStreamOptions;
  readonly down: Outlet;
  /** What waits until it is known whether the lease is lost; undefined if it is not in doubt. */
  delayed: (() => void)[] | undefined = undefined;
  isDetached = false;
  /** Whether another instance had stored an id before this one took the run. */
  hasStoredId = false;

  constructor(held: HeldRun, options: StoredStreamOptions) {
    this.held = held;
    this.options = options;
    this.down = waitingOutlet(held);
  }

  get outlet(): Outlet {
    return this;
  }

  read(outlet: Outlet, at: number, closed: () => void): Reader {
    return this.held.run.stream.read(outlet, at, closed);
  }

  ended(): StreamEnd | undefined {
    return this.held.run.stream.ended();
  }

  abandon(): void {
    this.held.run.stream.abandon();
  }

  isSure(): boolean {
    const { isLostByRedis, confirmedAt } = this.held;
    return !this.isDetached && (isLostByRedis || performance.now() - confirmedAt < SURE_MS);
  }

  detach(): void {
    const { source } = this.held;
    this.isDetached = true;
    this.held.source = undefined;
    source?.closed();
  }

  open(source: OutletSource): void {
    this.held.source = source;
    this.hasStoredId = source.resumeState?.() !== undefined;
    this.down.open(source);
  }

  isFull(): boolean {
    return this.down.isFull();
  }

  hasBegun(): boolean {
    return this.down.hasBegun();
  }

  write(bytes: Buffer, isInside: boolean): void {
    if (mayAct(this)) write(this, bytes, isInside);
    else delay(this, () => write(this, bytes, isInside));
  }

  complete(): void {
    if (mayAct(this)) this.down.complete();
    else delay(this, () => this.down.complete());
  }

  endEarly(problem: Problem, isCut: boolean): void {
    if (mayAct(this)) this.down.endEarly(problem, isCut);
    else delay(this, () => this.down.endEarly(problem, isCut));
  }
}

function mayAct(stream: LeasedStream): boolean {
  return stream.delayed === undefined && stream.isSure();
}

function write({ held, down, options, hasStoredId }: LeasedStream, bytes: Buffer, isInside: boolean): void {
  held.isInside = isInside;
  const kept = Buffer.from(bytes);
  note(held, { bytes: kept, isInside }, options.maxBytes);
  if (storeSoon(held, options.flush) && !hasStoredId) holdBack(held, kept, isInside);
  else down.write(kept, isInside);
}

/** From the first id on, the run need not end with this instance. Returns whether that must be stored first. */
function storeSoon(held: HeldRun, flush: RunFlush): boolean {
  if (held.isResumable || !held.source?.resumeState?.()) {
    if (isAwaited(held)) flush.flushSoon();
    return false;
  }
  held.isResumable = true;
  flush.flushInThisTurn(held);
  return held.log === 'open';
}

/** A process that was stopped must not go on with a stream that another instance goes on with: it asks first. */
function delay(stream: LeasedStream, work: () => void): void {
  const { held, options } = stream;
  if (stream.isDetached) return;
  if (stream.delayed) stream.delayed.push(work);
  else {
    stream.delayed = [work];
    held.isSourceAhead = true;
    held.source?.full();
    void options.flush.flushNow().then(() => settle(stream));
  }
}

/** Without an answer, the readers go on: nobody can take a run whose Redis is away. */
function settle(stream: LeasedStream): void {
  const { delayed = [], held } = stream;
  stream.delayed = undefined;
  if (stream.isDetached) return;
  for (const [n, work] of delayed.entries()) {
    held.isSourceAhead = n < delayed.length - 1;
    work();
  }
  if (!held.waiting && !held.run.stream.outlet.isFull()) held.source?.drained();
}
