import type { RequestHandler } from 'express';

/** How long requests that come at once are begun before open streams get their turn, in ms. */
const TURN_MS = 2;

/**
 * Begins requests for a short time in each round of the event loop, the others in their order in the rounds behind
 * it: thousands that come at the same moment, such as a flood of sign-ins, must not hold up the streams that are
 * open. One whose client has left meanwhile is not begun.
 */
export function inTurns(): RequestHandler {
  let waiting: (() => void)[] = [];
  let isTurn = false;
  let endsAt = 0;

  function turn(): void {
    endsAt = performance.now() + TURN_MS;
    let begun = 0;
    for (; begun < waiting.length && performance.now() < endsAt; begun += 1) waiting[begun]?.();
    waiting = waiting.slice(begun);
    isTurn = waiting.length > 0;
    if (isTurn) setImmediate(turn);
  }

  return function inTurns(_req, res, next) {
    if (!isTurn) {
      isTurn = true;
      endsAt = performance.now() + TURN_MS;
      setImmediate(turn);
    }
    if (waiting.length === 0 && performance.now() < endsAt) next();
    else waiting.push(() => res.closed || next());
  };
}
