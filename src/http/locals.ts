import type { Response } from 'express';
import { PROBLEMS, type ProblemCode } from '../errors.ts';

/** What is known of a request for its log line and the metrics. No decision of the relay depends on it. */
export interface RequestLocals {
  requestId: string;
  /** The route's path pattern, never the path of the request. */
  route?: string | undefined;
  /** True for a request to a health probe. */
  isProbe?: boolean;
  /** True for a live stream: its waits and its first byte say nothing about messages. */
  isLive?: boolean;
  /**
   * How the request ended: a problem's code, `client_closed`, `client_stalled` or `not_ready`; unset means that it went
   * well.
   */
  outcome?: string;
  /** Why it ended so, in one word, such as an error code of the system or the HTTP parser. */
  cause?: string;
  /** The level of the log line, where it does not follow from the outcome. */
  level?: 'warn';
  /** The name in a sign-in with a password. */
  account?: string;
  /** Whose session it was, or who was refused. */
  userId?: string | undefined;
  /** `namespace/bot` of the allow-list, or one that is not on it and looks like a name. */
  bot?: string | undefined;
  /** The HTTP status of the bot service, if it answered. */
  upstreamStatus?: number | undefined;
  /** What was carried of the bot service's stream. */
  stream?: CarriedStream | undefined;
  /** How many sessions the identity provider has ended, and by which claim. */
  sessionsEnded?: { readonly by: 'sid' | 'sub'; readonly count: number };
  /** How many messages a suspend has dropped before they were sent. */
  stoppedMessages?: number;
  /** How many times the relay has tried to resume the stream of the bot service. */
  resumptions?: number;
  /** Why a stream that broke off was not resumed, or not once more. */
  notResumed?: string;
  /** How the message waited for its slots. */
  slotWait?: SlotWait | undefined;
}

/** Locals of a new request, with all that most requests set: to add properties to an object later costs more. */
export function newLocals(): RequestLocals {
  return {
    requestId: '',
    route: undefined,
    userId: undefined,
    bot: undefined,
    upstreamStatus: undefined,
    stream: undefined,
    slotWait: undefined,
  };
}

/** The waits of a message for its slots. */
export interface SlotWait {
  /** The sum of the finished waits, in ms. */
  ms: number;
  /** When the current wait began, by `performance.now()` in ms. */
  since?: number | undefined;
  outcome: 'granted' | 'refused' | 'given_up';
}

/** How long a message has waited so far, in ms. The current wait counts: the client may leave before it ends. */
export function waitedMs({ ms, since }: SlotWait): number {
  return since === undefined ? ms : ms + performance.now() - since;
}

/** How much of a stream has been carried to its client. */
export interface CarriedStream {
  /** Bytes of the body that were written to the socket. */
  bytes: number;
  /** When the first byte was written, by `performance.now()` in ms. */
  firstByteAt?: number;
}

declare global {
  namespace Express {
    interface Locals extends RequestLocals {}
  }
}

/** The status of a request whose client left before the answer (nginx's convention). */
const CLIENT_CLOSED_STATUS = 499;

/** How a request ended: its HTTP status, and `ok`, `client_closed`, `client_stalled`, `not_ready` or a problem's code. */
interface Ending {
  readonly status: number;
  readonly outcome: string;
}

/**
 * How the request ended. A failure in a stream has status 200 and its code as the outcome. Call it only after `res` has
 * closed.
 */
export function endingOf(res: Response): Ending {
  return {
    status: res.headersSent ? res.statusCode : CLIENT_CLOSED_STATUS,
    outcome: res.locals.outcome ?? (res.writableFinished ? 'ok' : 'client_closed'),
  };
}

/**
 * The level of a request's log line, by the status of the outcome's code, if it has one: a failed stream has status
 * 200.
 */
export function levelOf({ status, outcome }: Ending): 'info' | 'warn' | 'error' {
  const statusOfOutcome = Object.hasOwn(PROBLEMS, outcome) ? PROBLEMS[outcome as ProblemCode].status : status;
  if (statusOfOutcome === 500) return 'error';
  return statusOfOutcome > 500 ? 'warn' : 'info';
}
