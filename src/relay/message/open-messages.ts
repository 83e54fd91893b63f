import type { RequestHandler } from 'express';
import type { Problem } from '../../errors.ts';
import type { LiveSession } from '../../http/locals.ts';

/** The messages of this process that have not been answered to their end. */
export interface OpenMessages {
  /** Adds a message of a session, which aborting `stop` ends. */
  add(stop: AbortController, sessionId: string): void;
  remove(stop: AbortController): void;
  /** Ends the open messages of one session with `problem`. */
  endSession(sessionId: string, problem: Problem): void;
  /** Ends every open message with `problem`. */
  endAll(problem: Problem): void;
  count(): number;
}

export function openMessages(): OpenMessages {
  const open = new Map<AbortController, string>();
  return {
    add(stop, sessionId) {
      open.set(stop, sessionId);
    },
    remove(stop) {
      open.delete(stop);
    },
    endSession(sessionId, problem) {
      for (const [stop, owner] of open) if (owner === sessionId) stop.abort(problem);
    },
    endAll(problem) {
      for (const stop of open.keys()) stop.abort(problem);
    },
    count: () => open.size,
  };
}

/** Why a message is stopped whose client has left. */
export const CLIENT_CLOSED = Symbol('client closed');

/**
 * Adds the message to `open` until its answer is over, with `res.locals.stop` to end it. Stands right behind
 * the session: a logout or shutdown also ends a message whose body is still arriving.
 */
export function openMessage(open: OpenMessages): RequestHandler {
  return function openMessage(_req, res, next) {
    // The client left while its session was looked up: nothing would tell of that again, and nobody waits for an answer.
    if (res.closed) return;
    const stop = new AbortController();
    res.locals.stop = stop;
    open.add(stop, (res.locals.session as LiveSession).id);
    res.once('close', () => {
      open.remove(stop);
      stop.abort(CLIENT_CLOSED);
    });
    next();
  };
}
