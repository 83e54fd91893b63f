import type { RequestHandler } from 'express';

/**
 * Makes one stage of several, which run in this order; undefined stands for none. It costs less than Express's router,
 * which does more for a stage than most stages do themselves. As in the router, the next stage runs when a stage calls
 * `next` without an error. What a stage throws, rejects with or gives to `next` goes to Express, and no other stage runs.
 */
export function inOrder(those: readonly (RequestHandler | undefined)[]): RequestHandler {
  const stages = those.filter((stage) => stage !== undefined);
  return function inOrder(req, res, next) {
    let at = 0;
    // Without an error, Express would go on with what follows these stages.
    const fail = (error: unknown) => next(error || new Error('a stage has failed without an error'));
    function go(error?: unknown): void {
      // `next('route')` skips the other handlers of a route; here there is none.
      if (error && error !== 'route') return void next(error);
      const stage = stages[at++];
      if (!stage) return void next();
      try {
        const done: unknown = stage(req, res, go);
        if (done !== undefined) Promise.resolve(done).catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    }
    go();
  };
}

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
