import type { RequestHandler } from 'express';

/** How long requests are begun in one round of the event loop, in ms. */
const ROUND_MS = 2;

/**
 * Begins requests for at most `ROUND_MS` in each round of the event loop, and the others in their order in the next
 * rounds. Otherwise thousands that come at the same moment, such as a flood of sign-ins, would delay the open streams.
 * A request whose client has left meanwhile is not begun.
 */
export function spreadRequests(): RequestHandler {
  let waiting: (() => void)[] = [];
  let isScheduled = false;
  let endsAt = 0;

  function beginWaiting(): void {
    endsAt = performance.now() + ROUND_MS;
    let begun = 0;
    for (; begun < waiting.length && performance.now() < endsAt; begun += 1) waiting[begun]?.();
    waiting = waiting.slice(begun);
    isScheduled = waiting.length > 0;
    if (isScheduled) setImmediate(beginWaiting);
  }

  return function spreadRequests(_req, res, next) {
    if (!isScheduled) {
      isScheduled = true;
      endsAt = performance.now() + ROUND_MS;
      setImmediate(beginWaiting);
    }
    if (waiting.length === 0 && performance.now() < endsAt) next();
    else waiting.push(() => res.closed || next());
  };
}
