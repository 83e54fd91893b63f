/** What is known of a request for its log line and the metrics. Nothing of it steers what the relay does. */
export interface RequestLocals {
  requestId: string;
  /** The route's path pattern, never the path that came. */
  route?: string;
  /** True for a request that only asks how the relay is. */
  isProbe?: boolean;
  /** How the request ended: a problem's code, `client_closed`, `client_stalled` or `not_ready`; unset means that it went well. */
  outcome?: string;
  /** Why the bot service could not answer, as an error code of the system or the HTTP parser. */
  cause?: string;
  /** How the log tells of the request, where its outcome does not say. */
  level?: 'warn';
  /** Whose session it was, or who was refused. */
  userId?: string;
  /** `namespace/bot` of the allow-list. */
  bot?: string;
  /** The HTTP status of the bot service, if it answered. */
  upstreamStatus?: number | undefined;
  /** What was carried of the bot service's stream. */
  stream?: CarriedStream;
  /** How many sessions the identity provider has ended, and what it named them by. */
  sessionsEnded?: { readonly by: 'sid' | 'sub'; readonly count: number };
  /** How the message waited for its slots. */
  slotWait?: SlotWait;
}

/** The waits of a message for its slots. */
export interface SlotWait {
  /** How long those that are over took, in ms. */
  ms: number;
  /** When the one that is not over began, by `performance.now()` in ms. */
  since?: number | undefined;
  outcome: 'granted' | 'refused' | 'given_up';
}

/** How long a message has waited so far, in ms: its client may leave before the wait learns of it. */
export function waitedMs({ ms, since }: SlotWait): number {
  return since === undefined ? ms : ms + performance.now() - since;
}

/** How much of a stream has been carried to its client. */
export interface CarriedStream {
  /** Bytes of the body that were handed to the socket. */
  bytes: number;
  /** When the first of them was, by `performance.now()` in ms. */
  firstByteAt?: number;
}

declare global {
  namespace Express {
    interface Locals extends RequestLocals {}
  }
}
