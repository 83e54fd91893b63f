import type { ServerResponse } from 'node:http';
import type { FailureNotes, Problem } from '../../errors.ts';
import type { CarriedStream } from '../../http/locals.ts';
import type { Heartbeats, Silence } from './heartbeats.ts';
import { cutWhenStalled, endEarly, type StreamIdentity } from './stream-ending.ts';
import { streamWriter } from './stream-writer.ts';

/** What writes to a sink; the sink calls these methods. */
export interface StreamSource {
  /** There is no more room: nothing should be read until `drained`. Bytes that come nevertheless are taken. */
  full(): void;
  /** There is room again. */
  drained(): void;
  /** Whether a heartbeat may be written now: only between two lines, and outside of an event. */
  mayBeat(): boolean;
  /** The sink takes nothing more. Called once, whatever has ended the stream. */
  closed(): void;
}

/** Takes one stream, and gives it to a client, or to the readers of a run. */
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

/** A comment line without an empty line after it: all parsers ignore it, and none takes it for an event. */
const HEARTBEAT = ':\n';
const STALLED_MS = 60_000;

export interface ResponseSinkOptions {
  /** Its headers must be sent already. */
  readonly res: ServerResponse;
  readonly identity: StreamIdentity;
  /** Counts the written bytes. */
  readonly stream: CarriedStream;
  /** Gets the reason if the stream ends early. */
  readonly log: FailureNotes;
  readonly heartbeats: Heartbeats;
  /** Called at every heartbeat that is written. */
  readonly onHeartbeat?: () => void;
  /** How long a client may read nothing while data waits for it, in ms; by default a minute. */
  readonly stalledMs?: number;
}

/**
 * Writes a stream to one client, with heartbeats while it is silent. A client that reads nothing for long is cut. If
 * `res` has closed already, `open` tells the source so at once.
 */
export function responseSink(options: ResponseSinkOptions): StreamSink {
  const { res, identity, stream, log, stalledMs = STALLED_MS } = options;
  const silence: Silence = { ticks: 0 };
  let source: StreamSource | undefined;
  let hasBegun = false;
  const writer = streamWriter(res, () => {
    source?.full();
    cutWhenStalled(res, stalledMs, log);
  });

  function beat(): void {
    writer.flush();
    if (!source?.mayBeat() || res.writableNeedDrain) return;
    hasBegun = true;
    res.write(HEARTBEAT);
    options.onHeartbeat?.();
  }

  return {
    open(from) {
      source = from;
      listen(options, { source, silence, beat });
    },
    write(bytes) {
      if (bytes.length === 0) return;
      stream.firstByteAt ??= performance.now();
      stream.bytes += bytes.length;
      silence.ticks = 0;
      hasBegun = true;
      writer.write(bytes);
    },
    isFull() {
      writer.flush();
      return res.writableNeedDrain;
    },
    hasBegun: () => hasBegun,
    complete() {
      writer.flush();
      res.end();
      // The system nearly always takes the rest at once. Set after `end`, it replaces the time limit of the server.
      if (res.socket?.writableLength !== 0) cutWhenStalled(res, stalledMs, log);
    },
    endEarly(problem, isCut) {
      writer.flush();
      endEarly(res, { problem, isCut, identity, log });
    },
  };
}

function listen(
  { res, heartbeats }: ResponseSinkOptions,
  {
    source,
    silence,
    beat,
  }: { readonly source: StreamSource; readonly silence: Silence; readonly beat: () => void },
): void {
  if (res.closed) {
    source.closed();
    return;
  }
  res.on('drain', () => {
    res.setTimeout(0);
    source.drained();
  });
  res.on('close', () => {
    heartbeats.unwatch(silence);
    source.closed();
  });
  heartbeats.watch(silence, beat);
}
