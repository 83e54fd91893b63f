import type { RequestHandler } from 'express';

/**
 * Makes one stage of several, which run in this order; undefined stands for none. Express's router does more for each
 * stage that it knows than most of them do themselves. As in the router, a stage goes on by `next` without an error,
 * now or later. What it throws or rejects with, or gives to `next`, goes to Express, and no other stage runs.
 */
export function inOrder(those: readonly (RequestHandler | undefined)[]): RequestHandler {
  const stages = those.filter((stage) => stage !== undefined);
  return function inOrder(req, res, next) {
    let at = 0;
    // Without an error, Express would go on behind the stages that have not run.
    const fail = (error: unknown) => next(error || new Error('a stage has failed without an error'));
    function go(error?: unknown): void {
      // Of a stage that stands before all routes, `route` leaves out nothing.
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
