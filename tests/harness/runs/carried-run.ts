import { randomUUID } from 'node:crypto';
import type { Problem } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import { heldBytes } from '../../../src/relay/message/held-bytes.ts';
import type { StreamSink, StreamSource } from '../../../src/relay/message/response-sink.ts';
import { Run, type RunOptions } from '../../../src/runs/run.ts';
import type { RunName } from '../../../src/runs/run-name.ts';
import type { Confirmation, Confirmed, RunStore } from '../../../src/runs/run-store.ts';
import { until } from '../clock/until.ts';

/** A name; each part can be replaced. */
export function nameOf(key: string, changes: Partial<RunName> = {}): RunName {
  return { conversation: 'c', message: `message-of-${key}`, key, outlivesRun: true, ...changes };
}

/** A run with this name. */
export function runOf(name: RunName, changes: Partial<RunOptions> = {}): Run {
  return new Run({
    ...{ id: randomUUID(), name, requestId: `request-of-${name.key}`, conversation: name.conversation },
    ...{ waitsSince: performance.now(), graceMs: 60_000, maxBytes: 1 << 20, bound: heldBytes(1 << 26) },
    ...{ onEnd() {}, onGrace() {} },
    ...changes,
  });
}

/** A run that has claimed its name in `store`, which carries it. */
export async function claimedRun(store: RunStore, name: RunName, changes?: Partial<RunOptions>) {
  const run = runOf(name, changes);
  const { state } = await store.claim(name, run);
  if (state !== 'claimed') throw new Error(`the name is ${state}`);
  run.carried = store.carry(run);
  return run;
}

export function confirm(store: RunStore, run: Run, changes?: Partial<Confirmation>): Promise<Confirmed> {
  const { id, name, conversation, waitsSince } = run;
  return store.confirm({ id, name, conversation, waitsSince, ...changes });
}

/** A run that was sent. */
export async function sentRun(...of: Parameters<typeof claimedRun>): Promise<Run> {
  const run = await claimedRun(...of);
  const confirmed = await confirm(of[0], run);
  if (confirmed !== 'confirmed') throw new Error(`the run is ${JSON.stringify(confirmed)}`);
  run.sent();
  return run;
}

/** A run whose stream has begun. */
export async function begunRun(...of: Parameters<typeof claimedRun>): Promise<Run> {
  const run = await sentRun(...of);
  run.headers.set('x-request', 'one');
  run.beginStream(new Map([['content-type', 'text/event-stream']]));
  return run;
}

/** Bytes of the run's stream. */
export function say(run: Run, text: string): void {
  run.stream.write(Buffer.from(text), !text.endsWith('\n\n'));
}

/** Ends the run, as complete or with a failure; resolves when that is stored. */
export function end(run: Run, failure?: unknown): Promise<void> {
  if (failure === undefined) run.stream.complete();
  run.end(failure);
  return run.stored;
}

/** A client of a run, and what it has got. */
export class RecordingSink implements StreamSink {
  text = '';
  /** The code of the problem with which it has ended, or `complete`; undefined while it has not. */
  end: string | undefined;
  isCut = false;
  source: StreamSource | undefined;
  private isHeld = false;

  open(source: StreamSource): void {
    this.source = source;
  }

  write(bytes: Buffer): void {
    this.text += bytes.toString('latin1');
  }

  isFull(): boolean {
    return this.isHeld;
  }

  hasBegun(): boolean {
    return this.text !== '';
  }

  complete(): void {
    this.end = 'complete';
    this.source?.closed();
  }

  endEarly(problem: Problem, isCut: boolean): void {
    this.end = problem.code;
    this.isCut = isCut;
    this.source?.closed();
  }

  /** Takes nothing until `release`. */
  hold(): void {
    this.isHeld = true;
    this.source?.full();
  }

  release(): void {
    this.isHeld = false;
    this.source?.drained();
  }

  /** Resolves once it has got this. */
  got(text: string): Promise<void> {
    return until(() => this.text === text);
  }

  /** Resolves with how it has ended. */
  async ended(): Promise<string | undefined> {
    await until(() => this.end !== undefined);
    return this.end;
  }
}

/** Attaches a client that reads the run from its beginning. */
export function readerOf(run: Run) {
  const sink = new RecordingSink();
  const stop = new AbortController();
  const reader = run.attach({ stop, bindToSession: () => () => {} });
  // What it has failed with before its stream began is its end, too.
  const failed = reader.head().then(
    () => undefined,
    (failure: unknown) => failure,
  );
  void reader.read(sink, 0);
  return {
    sink,
    failed,
    leave() {
      stop.abort(CLIENT_LEFT);
      reader.leave();
    },
  };
}

/** The same run at another instance, whose store is `store`, with one reader. */
export function joinedRun(store: RunStore, run: Run) {
  if (!run.name) throw new Error('nobody can join a run without a name');
  const own = runOf(run.name);
  own.follow(run);
  const reader = readerOf(own);
  void store.follow(own);
  return { own, ...reader };
}
