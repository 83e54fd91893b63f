import type { ServerResponse } from 'node:http';
import { type FailureNotes, Problem } from '../../errors.ts';
import type { CarriedStream } from '../../http/locals.ts';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';
import type { Heartbeats, Silence } from './heartbeats.ts';
import { dropLateBom } from './late-bom.ts';
import { cutWhenStalled, endTruthfully, type StreamOf } from './stream-ending.ts';
import { type StreamPosition, streamPosition } from './stream-position.ts';
import { type StreamWriter, streamWriter } from './stream-writer.ts';

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

/** A stream on its way, and how far it has come. */
interface Carriage extends CarryOptions {
  readonly stalledMs: number;
  readonly position: StreamPosition;
  readonly silence: Silence;
  readonly writer: StreamWriter;
  /** Nothing more of the stream goes to the client. */
  over: boolean;
  /** Set as soon as a heartbeat went down before the first byte. */
  lateBom: ReturnType<typeof dropLateBom> | undefined;
}

/**
 * Carries the bot service's stream to the client, byte for byte and chunk by chunk as it comes, reading no
 * faster than the client does, with a heartbeat where it is silent. Resolves when the answer is over, however
 * it ended.
 */
export function carryStream(options: CarryOptions): Promise<void> {
  const { upstream, res, signal, heartbeats } = options;
  const carriage = carriageOf(options);
  const { silence } = carriage;
  const onAbort = () => signal.reason instanceof Problem && stop(carriage, signal.reason);
  return new Promise((resolve) => {
    res.on('drain', () => goOn(carriage));
    res.on('close', () => {
      leave(carriage);
      heartbeats.unwatch(silence);
      signal.removeEventListener('abort', onAbort);
      resolve();
    });
    signal.addEventListener('abort', onAbort);
    heartbeats.watch(silence, () => beat(carriage));
    if (signal.aborted) onAbort();
    upstream.read({
      data: (chunk) => carry(carriage, chunk),
      end: () => end(carriage),
      broken: (cause) => breakOff(carriage, cause),
    });
  });
}

function carriageOf(options: CarryOptions): Carriage {
  const { upstream, res, log, stalledMs = STALLED_MS } = options;
  const writer = streamWriter(res, () => {
    upstream.pause();
    cutWhenStalled(res, stalledMs, log);
  });
  const position = streamPosition();
  return { ...options, stalledMs, position, silence: { ticks: 0 }, writer, over: false, lateBom: undefined };
}

function carry(carriage: Carriage, chunk: Buffer): void {
  const { over, stream, silence, position, writer, lateBom } = carriage;
  if (over) return;
  stream.firstByteAt ??= performance.now();
  stream.bytes += chunk.length;
  silence.ticks = 0;
  position.push(chunk);
  writer.write(lateBom ? lateBom.without(chunk) : chunk);
}

/** There is room for more on the way to the client. */
function goOn({ res, upstream }: Carriage): void {
  res.setTimeout(0);
  upstream.resume();
}

function beat(carriage: Carriage): void {
  const { res, stream, position, writer, onHeartbeat } = carriage;
  writer.flush();
  if (carriage.over || res.writableNeedDrain || !position.atEventBoundary() || !position.endsWithLf()) return;
  if (stream.firstByteAt === undefined) carriage.lateBom ??= dropLateBom();
  res.write(HEARTBEAT);
  onHeartbeat?.();
}

/** The service's answer has come to its end. */
function end(carriage: Carriage): void {
  const { upstream, res, position, writer, log, stalledMs, lateBom } = carriage;
  if (carriage.over) return;
  if (isCloseDelimited(upstream) && !endedWell(upstream, position)) {
    breakOff(carriage, 'closed');
    return;
  }
  carriage.over = true;
  writer.flush();
  cutWhenStalled(res, stalledMs, log);
  res.end(lateBom?.rest());
}

function breakOff(carriage: Carriage, cause: string): void {
  if (!carriage.over) stop(carriage, brokenStream(cause));
}

/** Ends the stream before its time, with `problem`. */
function stop(carriage: Carriage, problem: Problem): void {
  const { res, position, of, log, writer } = carriage;
  if (carriage.over) return;
  writer.flush();
  leave(carriage);
  endTruthfully(res, { problem, position, of, log });
}

function leave(carriage: Carriage): void {
  carriage.over = true;
  carriage.upstream.close();
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
