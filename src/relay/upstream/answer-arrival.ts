import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { UpstreamConnection } from './upstream-connections.ts';

/** Takes the body of an answer. */
export interface AnswerReader {
  data(chunk: Buffer): void;
  /** The body is complete, as far as HTTP can tell. */
  end(): void;
  /** The body broke off; `cause` is the error code of the system or the HTTP parser. */
  broken(cause: string): void;
}

/** An answer of the bot service, whose body waits to be read. */
export interface UpstreamAnswer {
  readonly status: number;
  /** By lower-case name; the values of a field that came more than once are joined (RFC 9110 §5.3). */
  readonly headers: Readonly<Record<string, string>>;
  /** Gives the body to `reader` from now on. Call it once. */
  read(reader: AnswerReader): void;
  /** Stops reading the body until `resume`; data that was read already still arrives. */
  pause(): void;
  resume(): void;
  /** Closes the connection; the reader's `broken` is called with `closed`. Does nothing after the reader's `end`. */
  close(): void;
  /** Whether the connection broke instead of ending: needed for a body that ends with its connection. */
  hasError(): boolean;
}

/** The fields of a head, as undici gives them. */
export type Fields = Readonly<Record<string, string | string[] | undefined>>;

/** The state of an answer, and its reader. Its fields are for the functions below alone. */
export interface AnswerArrival {
  readonly connection: UpstreamConnection;
  /** What has arrived: nothing, its first byte, or its headers. */
  state: 'awaited' | 'started' | 'head';
  /** Whether it has ended, broken off or been closed. */
  over: boolean;
  reader: AnswerReader | undefined;
  /** The body that came before its reader, and how many bytes that is. */
  readonly early: Buffer[];
  earlyBytes: number;
  /** How the body ended before its reader came. */
  earlyEnd: ReaderCall | undefined;
  /** Whether the reader has asked for a pause. */
  isHeldBack: boolean;
  /** Since when the body is not read, and how long it was not read before, in ms. */
  pausedAt: number | undefined;
  pausedMs: number;
}

/** A call of one of the reader's methods. */
type ReaderCall = (reader: AnswerReader) => void;

/**
 * After how many bytes a body without a reader is paused. Not at once: its reader nearly always comes in the same turn of
 * the event loop, and after a pause in the middle of a read, undici puts back what is left and reads it again.
 */
const EARLY_BYTES = 4096;

/**
 * The answer of the current request on `connection`, of which nothing has come yet. The functions take undici's events.
 */
export function newArrival(connection: UpstreamConnection): AnswerArrival {
  return {
    connection,
    state: 'awaited',
    over: false,
    reader: undefined,
    early: [],
    earlyBytes: 0,
    earlyEnd: undefined,
    isHeldBack: false,
    pausedAt: undefined,
    pausedMs: 0,
  };
}

/** The first byte of the answer has arrived. */
export function firstByteArrives(arrival: AnswerArrival): void {
  if (arrival.state !== 'awaited') return;
  arrival.state = 'started';
  arrival.connection.answering();
}

/** Whether a byte of the answer has arrived. */
export function hasFirstByte({ state }: AnswerArrival): boolean {
  return state !== 'awaited';
}

/** The headers have arrived. */
export function headArrives(
  arrival: AnswerArrival,
  controller: Dispatcher.DispatchController,
  { status, fields }: { readonly status: number; readonly fields: Fields },
): UpstreamAnswer {
  arrival.state = 'head';
  arrival.connection.announced(fields['keep-alive']);
  return answerOf(arrival, controller, { status, headers: joinFields(fields) });
}

/** Whether the headers have arrived. */
export function hasHead({ state }: AnswerArrival): boolean {
  return state === 'head';
}

/** A part of the body has arrived. */
export function dataArrives(
  arrival: AnswerArrival,
  controller: Dispatcher.DispatchController,
  chunk: Buffer,
): void {
  if (arrival.over) return;
  if (arrival.reader) {
    arrival.reader.data(chunk);
    return;
  }
  arrival.early.push(chunk);
  arrival.earlyBytes += chunk.length;
  if (arrival.earlyBytes > EARLY_BYTES) pause(arrival, controller);
}

/** All of the body has arrived. */
export function bodyEnds(arrival: AnswerArrival): void {
  // The connection is given back only when the body is read: an answer that nobody wants is closed with it.
  arrival.pausedAt ??= performance.now();
  callReader(arrival, (reader) => end(arrival, reader));
}

/** The answer broke off; `cause` is the error code of the system or the HTTP parser. */
export function answerBreaksOff(arrival: AnswerArrival, cause: string): void {
  arrival.connection.close();
  finish(arrival, (reader) => reader.broken(cause));
}

function pause(arrival: AnswerArrival, controller: Dispatcher.DispatchController): void {
  // The connection may have another request already.
  if (arrival.over) return;
  arrival.pausedAt ??= performance.now();
  controller.pause();
}

function resume(arrival: AnswerArrival, controller: Dispatcher.DispatchController): void {
  if (arrival.over) return;
  countPause(arrival);
  controller.resume();
}

function countPause(arrival: AnswerArrival): void {
  if (arrival.pausedAt === undefined) return;
  arrival.pausedMs += performance.now() - arrival.pausedAt;
  arrival.pausedAt = undefined;
}

/** The answer with this head, and the methods for its body. */
function answerOf(
  arrival: AnswerArrival,
  controller: Dispatcher.DispatchController,
  { status, headers }: Pick<UpstreamAnswer, 'status' | 'headers'>,
): UpstreamAnswer {
  const { connection, early } = arrival;
  return {
    status,
    headers,
    read(reader) {
      arrival.reader = reader;
      for (const chunk of early.splice(0)) reader.data(chunk);
      arrival.earlyEnd?.(reader);
      if (!arrival.isHeldBack) resume(arrival, controller);
    },
    pause() {
      arrival.isHeldBack = true;
      pause(arrival, controller);
    },
    resume() {
      arrival.isHeldBack = false;
      resume(arrival, controller);
    },
    close() {
      if (arrival.over) return;
      connection.close();
      early.length = 0;
      arrival.earlyEnd = undefined;
      finish(arrival, (reader) => reader.broken('closed'));
    },
    hasError: connection.hasError,
  };
}

/** Calls the reader, or, if it has not come yet, notes the call for when it comes: after the early bytes. */
function callReader(arrival: AnswerArrival, call: ReaderCall): void {
  if (arrival.over) return;
  if (arrival.reader) call(arrival.reader);
  else arrival.earlyEnd = call;
}

function end(arrival: AnswerArrival, reader: AnswerReader): void {
  const { connection } = arrival;
  countPause(arrival);
  connection.answered(arrival.pausedMs);
  connection.release();
  finish(arrival, () => reader.end());
}

function finish(arrival: AnswerArrival, call: ReaderCall): void {
  callReader(arrival, call);
  arrival.over = true;
}

function joinFields(fields: Fields): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(fields)) {
    const value = fields[name];
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(', ') : value;
  }
  return headers;
}

/**
 * The body of `answer` as a stream of Node.js, for bodies that the relay itself reads. If the body breaks off, the
 * stream's error has the cause as its `code`.
 */
export function bodyOf(answer: UpstreamAnswer): Readable {
  const body = new Readable({
    read: answer.resume,
    destroy(error, done) {
      answer.close();
      done(error);
    },
  });
  answer.read({
    data(chunk) {
      if (!body.push(chunk)) answer.pause();
    },
    end: () => void body.push(null),
    broken: (code) => void body.destroy(Object.assign(new Error('The body broke off.'), { code })),
  });
  return body;
}
