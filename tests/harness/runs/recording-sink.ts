import type { Problem } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import type { StreamSink, StreamSource } from '../../../src/relay/message/response-sink.ts';
import type { Run } from '../../../src/runs/run.ts';

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
    if (this.isHeld) source.full();
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
  hold(): this {
    this.isHeld = true;
    this.source?.full();
    return this;
  }

  release(): void {
    this.isHeld = false;
    this.source?.drained();
  }
}

/** Attaches a client that reads the run from its beginning. */
export function readerOf(run: Run, sink = new RecordingSink()) {
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
