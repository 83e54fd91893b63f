import type { RequestHandler } from 'express';

/**
 * Makes one stage of several, which run in this order; undefined stands for none. Express's router does more for each stage that it knows than most
 * of them do themselves. What a stage throws goes to `next`, as in the router, also if it was begun later.
 */
export function inOrder(those: readonly (RequestHandler | undefined)[]): RequestHandler {
  const stages = those.filter((stage) => stage !== undefined);
  return function inOrder(req, res, next) {
    let at = 0;
    function go(error?: unknown): void {
      const stage = error === undefined ? stages[at++] : undefined;
      try {
        if (stage) void stage(req, res, go);
        else next(error);
      } catch (thrown) {
        next(thrown);
      }
    }
    go();
  };
}
