import type { Dispatcher } from 'undici';
import { Problem } from '../../errors.ts';
import {
  type AnswerArrival,
  answerBreaksOff,
  bodyEnds,
  dataArrives,
  type Fields,
  firstByteArrives,
  hasFirstByte,
  hasHead,
  headArrives,
  newArrival,
  type UpstreamAnswer,
} from './answer-arrival.ts';
import type { UpstreamConnection } from './upstream-connections.ts';
import { noAnswer } from './upstream-problems.ts';

/** Why a request was not sent: it was delayed, or its kept connection is too old or has broken. */
type NotSentReason = 'delayed' | 'stale';

/** Thrown instead of sending a request. */
class NotSent extends Error {
  readonly why: NotSentReason;

  constructor(why: NotSentReason) {
    super(why);
    this.why = why;
  }
}

/** Made once, since the stack of an error takes longer to collect than a message to send. */
const DELAYED = new NotSent('delayed');
const STALE = new NotSent('stale');

interface ExchangeOptions {
  /** Aborted, it closes the connection, as long as there is no answer. */
  readonly signal: AbortSignal;
  /** Called when the operating system has taken the first bytes of the request. */
  readonly onSent: () => void;
  /** Asked right before the first byte is sent: if it is true, none is sent. */
  readonly isDelayed: () => boolean;
}

/** A request until its answer begins. */
interface Exchange extends ExchangeOptions {
  readonly connection: UpstreamConnection;
  readonly method: string;
  readonly resolve: (outcome: UpstreamAnswer | NotSentReason) => void;
  readonly reject: (reason: unknown) => void;
  readonly abort: () => void;
  /** Whether its first bytes were sent. */
  hasLeft: boolean;
}

/** Sends `outgoing` over `connection`; resolves with the reason if no byte of it was sent. */
export function exchange(
  connection: UpstreamConnection,
  outgoing: Dispatcher.DispatchOptions,
  options: ExchangeOptions,
): Promise<UpstreamAnswer | NotSentReason> {
  return new Promise((resolve, reject) => {
    const { signal } = options;
    const abort = () => {
      reject(signal.reason);
      connection.close();
    };
    signal.addEventListener('abort', abort, { once: true });
    const { method } = outgoing;
    const { onSent, isDelayed } = options;
    const begun = { signal, onSent, isDelayed, connection, method, resolve, reject, abort, hasLeft: false };
    connection.dispatch(outgoing, new ExchangeHandler(begun));
  });
}

/** Takes undici's events. A class, since each message has one: closures would take several times as much memory. */
class ExchangeHandler implements Dispatcher.DispatchHandler {
  readonly arrival: AnswerArrival;
  /** Dropped when the answer begins, since that may last for minutes. */
  waiting: Exchange | undefined;

  constructor(begun: Exchange) {
    this.arrival = newArrival(begun.connection);
    this.waiting = begun;
  }

  onRequestStart(): void {
    // Asked here and not before, since a busy process delays timers and requests.
    if (this.waiting?.connection.isStale()) throw STALE;
    if (this.waiting?.isDelayed()) throw DELAYED;
  }

  onBodySent(): void {
    const { waiting } = this;
    if (!waiting || waiting.hasLeft) return;
    waiting.onSent();
    waiting.hasLeft = true;
  }

  onRequestSent(): void {
    this.onBodySent();
  }

  onResponseStarted(): void {
    firstByteArrives(this.arrival);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, fields: Fields): void {
    // Ignore an interim answer (RFC 9110 §15.2).
    if (status < 200 || !this.waiting) return;
    const { signal, abort, resolve, hasLeft } = this.waiting;
    signal.removeEventListener('abort', abort);
    // The raw headers would keep the network buffer that they came in for as long as the answer lasts.
    controller.rawHeaders = null;
    resolve(headArrives(this.arrival, controller, { status, fields }));
    // An answer may come before the first byte of the request leaves.
    if (hasLeft) this.waiting = undefined;
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    dataArrives(this.arrival, controller, chunk);
  }

  onResponseEnd(): void {
    bodyEnds(this.arrival);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const { arrival, waiting } = this;
    if (hasHead(arrival)) answerBreaksOff(arrival, codeOf(error));
    else if (waiting) fail(waiting, error, hasFirstByte(arrival));
  }
}

/** The answer has no headers. `isStarted`: at least one byte of it has arrived. */
function fail(
  { connection, method, signal, abort, hasLeft, resolve, reject }: Exchange,
  error: Error,
  isStarted: boolean,
): void {
  signal.removeEventListener('abort', abort);
  // A reset of an idle connection also fails the request that was about to take it.
  const why = error instanceof NotSent ? error.why : !hasLeft && connection.isKept() && 'stale';
  if (why) {
    resolve(why);
    return;
  }
  connection.close();
  // A GET starts nothing (RFC 9110 §9.2.1).
  reject(failureOf(error, { isStarted, maybeRuns: hasLeft && method === 'POST' }));
}

function codeOf(error: Error): string {
  const { code = error.name } = error as NodeJS.ErrnoException;
  // The service closed the connection: use the name that Node.js has for it.
  return code === 'UND_ERR_SOCKET' ? 'ECONNRESET' : code;
}

interface Progress {
  /** At least one byte was handed to the system of a request that runs something. */
  readonly maybeRuns: boolean;
  /** At least one byte of an answer has arrived. */
  readonly isStarted: boolean;
}

/** The problem for a request without an answer. */
function failureOf(error: Error, { maybeRuns, isStarted }: Progress): Problem {
  const options = { cause: codeOf(error), ...(maybeRuns && { maybeStarted: true as const }) };
  return isStarted
    ? new Problem('upstream_bad_response', 'The bot service did not answer in HTTP.', options)
    : noAnswer(options);
}
