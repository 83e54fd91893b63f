import type { ServerResponse } from 'node:http';
import type { Bot } from '../../bots/bot.ts';
import {
  asMaybeStarted,
  type FailureNotes,
  type Problem,
  problemDocument,
  recordOutcome,
} from '../../errors.ts';
import { breakOff, breakOffAfterData } from '../../http/client-connection.ts';
import { STREAM_HEADERS } from './begin-stream.ts';

/** How long the client may take to read the last bytes, in ms. */
const LAST_BYTES_MS = 5_000;

/** The answers that have the listener of `cutWhenStalled`. */
const watched = new WeakSet<ServerResponse>();

/**
 * Cuts the connection of a client if data waits for it and none of it was sent for `ms`, or up to twice that; `log` gets
 * the outcome `client_stalled`. The socket's timeout restarts whenever the system takes some of the data, which for a
 * very slow client is in large steps. `res.setTimeout(0)` cancels it.
 */
export function cutWhenStalled(res: ServerResponse, ms: number, log: FailureNotes): void {
  res.setTimeout(ms);
  if (watched.has(res)) return;
  watched.add(res);
  res.on('timeout', () => {
    log.outcome ??= 'client_stalled';
    breakOff(res);
  });
}

/** Which message and which bot a stream belongs to. */
export interface StreamIdentity {
  readonly requestId: string;
  readonly bot: Bot;
}

export interface StreamFailure {
  readonly problem: Problem;
  readonly identity: StreamIdentity;
  /** What ended the stream is noted in it. */
  readonly log: FailureNotes;
}

export interface EarlyEnd extends StreamFailure {
  /** Whether the connection is cut instead: a part of an event was sent, or asking again costs nothing. */
  readonly isCut: boolean;
}

/**
 * Ends a stream that cannot continue, so that it does not look complete: with one error event and a clean end, after
 * which no client sends the message again. If `isCut`, it cuts the connection.
 */
export function endEarly(res: ServerResponse, { problem, isCut, identity, log }: EarlyEnd): void {
  recordOutcome(log, problem);
  if (!res.closed) {
    const timer = setTimeout(() => res.socket?.resetAndDestroy(), LAST_BYTES_MS);
    res.once('close', () => clearTimeout(timer));
  }
  if (isCut) breakOffAfterData(res);
  else res.end(errorEvent(asMaybeStarted(problem), identity));
}

/**
 * Answers a failure as a stream with one error event and a clean end, for clients that send a message again after any
 * other status than 200. The event has the status of the failure.
 */
export function failInStream(res: ServerResponse, { problem, identity, log }: StreamFailure): void {
  recordOutcome(log, problem);
  res.statusCode = 200;
  res.setHeaders(STREAM_HEADERS);
  res.setHeader('Content-Type', 'text/event-stream');
  res.end(errorEvent(problem, identity));
}

/**
 * An error event for two kinds of clients: new ones read its name `error` and its `code`, and the clients in the field
 * read `asgard.run.error` in its data.
 */
function errorEvent(problem: Problem, { requestId, bot }: StreamIdentity): string {
  const { namespace, botProviderName } = bot;
  const { retryAfter } = problem.options;
  const document = problemDocument(problem, requestId);
  const data = {
    ...document,
    // An event has no header `Retry-After`.
    ...(document.retryable && retryAfter !== undefined && { retryAfter }),
    message: problem.message,
    eventType: 'asgard.run.error',
    namespace,
    botProviderName,
    customChannelId: null,
    fact: {
      runError: {
        error: {
          message: problem.message,
          code: problem.code,
          inner: '',
          location: { namespace, workflowName: '', processorName: '', processorType: '' },
        },
      },
    },
  };
  return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
}
