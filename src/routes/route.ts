import type { Express, Request, RequestHandler, Response } from 'express';
import { methodNotAllowed } from '../arrive/problem-response.ts';
import { CLIENT_LEFT } from '../http/client-left.ts';

/** The steps of a route, from its first to its last. Refuses by a Problem that it throws. */
export type Steps = (req: Request, res: Response) => Promise<void>;

/** What one path takes, by method; HEAD is taken with GET. */
export interface Methods {
  readonly get?: Steps;
  readonly post?: Steps;
}

/** One exact path, as the log and the metrics name it; every other method is refused with `Allow`. */
export function route(app: Express, path: string, { get, post }: Methods): void {
  if (get) app.get(path, handlerOf(path, get));
  if (post) app.post(path, handlerOf(path, post));
  const allow = [...(get ? ['GET, HEAD'] : []), ...(post ? ['POST'] : [])].join(', ');
  const refuse = methodNotAllowed(allow);
  app.all(
    path,
    handlerOf(path, async () => refuse()),
  );
}

/** A route whose client has left ends without an answer. */
function handlerOf(path: string, steps: Steps): RequestHandler {
  return async function route(req, res) {
    res.locals.route = path;
    try {
      await steps(req, res);
    } catch (error) {
      if (error !== CLIENT_LEFT) throw error;
    }
  };
}
