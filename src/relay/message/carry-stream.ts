import type { ServerResponse } from 'node:http';
import { type FailureNotes, Problem } from '../../errors.ts';
import type { CarriedStream } from '../../http/locals.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { Heartbeats, Silence } from './heartbeats.ts';
import { dropLateBom } from './late-bom.ts';
import { cutWhenStalled, endTruthfully, type StreamOf } from './stream-ending.ts';
import { type StreamPosition, streamPosition } from './stream-position.ts';
import { streamWriter } from './stream-writer.ts';

/** A comment line without an empty line: every parser passes over it, and none takes it for an event. */
const HEARTBEAT = ':\n';

export interface CarryOptions {
  readonly upstream: UpstreamAnswer;
  /** Its headers are sent. */
  readonly res: ServerResponse;
  readonly of: StreamOf;
  /** Counts what is carried. */
  readonly stream: CarriedStream;
  /** Told what ended the stream, if that was not its own end. */
  readonly log: FailureNotes;
  /** Aborted with a Problem, it ends the stream with that; with anything else, the client has left. */
  readonly signal: AbortSignal;
  readonly heartbeats: Heartbeats;
  /** Called at every heartbeat that is written. */
  readonly onHeartbeat?: () => void;
  /** How long a client may read nothing while data waits for it, in ms. */
  readonly stalledMs?: number;
}

const STALLED_MS = 60_000;

/**
 * Carries the bot service's stream to the client, byte for byte and chunk by chunk as it comes, reading no
 * faster than the client does, with a heartbeat where it is silent. Resolves when the answer is over, however
 * it ended.
 */
export function carryStream(options: CarryOptions): Promise<void> {
  const { upstream, res, signal, heartbeats } = options;
  const { silence, onData, onDrain, onEnd, beat, stop, broken, leave } = carrier(options);
  const onAbort = () => signal.reason instanceof Problem && stop(signal.reason);
  return new Promise((resolve) => {
    res.on('drain', onDrain);
    res.on('close', () => {
      leave();
      heartbeats.unwatch(silence);
      signal.removeEventListener('abort', onAbort);
      resolve();
    });
    signal.addEventListener('abort', onAbort);
    heartbeats.watch(silence, beat);
    if (signal.aborted) onAbort();
    upstream.read({ data: onData, end: onEnd, broken });
  });
}

/** What one stream does at each thing that can happen to it; `over` is the state that they share. */
function carrier({ upstream, res, of, stream, log, onHeartbeat, stalledMs = STALLED_MS }: CarryOptions) {
  const position = streamPosition();
  const silence: Silence = { ticks: 0 };
  const writer = streamWriter(res, waitForClient);
  let over = false;
  let lateBom: ReturnType<typeof dropLateBom> | undefined;

  function stop(problem: Problem): void {
    if (over) return;
    writer.flush();
    leave();
    endTruthfully(res, { problem, position, of, log });
  }
  function broken(cause: string): void {
    if (!over) stop(brokenStream(cause));
  }
  function leave(): void {
    over = true;
    upstream.close();
  }
  function onData(chunk: Buffer): void {
    if (over) return;
    stream.firstByteAt ??= performance.now();
    stream.bytes += chunk.length;
    silence.ticks = 0;
    position.push(chunk);
    writer.write(lateBom ? lateBom.without(chunk) : chunk);
  }
  function waitForClient(): void {
    upstream.pause();
    cutWhenStalled(res, stalledMs, log);
  }
  function onDrain(): void {
    res.setTimeout(0);
    upstream.resume();
  }
  function onEnd(): void {
    if (over) return;
    if (isCloseDelimited(upstream) && !endedWell(upstream, position)) {
      broken('closed');
      return;
    }
    over = true;
    writer.flush();
    cutWhenStalled(res, stalledMs, log);
    res.end(lateBom?.rest());
  }
  function beat(): void {
    writer.flush();
    if (over || res.writableNeedDrain || !position.atEventBoundary() || !position.endsWithLf()) return;
    if (stream.firstByteAt === undefined) lateBom ??= dropLateBom();
    res.write(HEARTBEAT);
    onHeartbeat?.();
  }
  return { silence, onData, onDrain, onEnd, beat, stop, broken, leave };
}

function brokenStream(cause: string): Problem {
  return new Problem('upstream_stream_broken', 'The answer broke off; what came before is not complete.', {
    cause,
  });
}

/**
 * Where the end of the connection is the end of the body, a reset or an end inside an event is no end; the
 * HTTP parser takes them for one.
 */
function endedWell(upstream: UpstreamAnswer, position: StreamPosition): boolean {
  return !upstream.hasError() && position.atEventBoundary();
}

function isCloseDelimited({ headers }: UpstreamAnswer): boolean {
  return headers['transfer-encoding'] === undefined && headers['content-length'] === undefined;
}
