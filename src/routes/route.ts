import type { Express, Request, RequestHandler, Response } from 'express';
import { methodNotAllowed } from '../arrive/problem-response.ts';
import { CLIENT_LEFT } from '../http/client-connection.ts';

/** What a request, or a run, gives back when it is over. */
export type Releases = (() => void)[];

/** Gives all back, what was taken last first. */
export function releaseAll(releases: Releases): void {
  for (let release = releases.pop(); release; release = releases.pop()) release();
}

/** All steps of a route, as one function. It refuses a request by a thrown Problem. */
export type Steps = (req: Request, res: Response) => Promise<void>;

const METHODS = ['get', 'post', 'put', 'delete'] as const;

/** The steps of one path by method. */
export interface Methods extends Partial<Record<(typeof METHODS)[number], Steps>> {
  /** GET serves HEAD, too, unless this is true. */
  readonly withoutHead?: boolean;
}

/** Serves one path pattern, by which the log and the metrics name the route. Other methods are refused with `Allow`. */
export function route(app: Express, path: string, methods: Methods): void {
  const { withoutHead = false } = methods;
  const allow: string[] = [];
  const refuse = handlerOf(path, async () => {
    throw methodNotAllowed(allow.join(', '));
  });
  // One route for all methods: `app.all` would make one for each method that Node.js knows, and read the pattern again.
  const one = app.route(path);
  if (withoutHead) one.head(refuse);
  for (const method of METHODS) {
    const steps = methods[method];
    if (!steps) continue;
    allow.push(method === 'get' && !withoutHead ? 'GET, HEAD' : method.toUpperCase());
    one[method](handlerOf(path, steps));
  }
  one.all(refuse);
}

/** Runs the steps. If the client has left, the request ends without an answer. */
function handlerOf(path: string, steps: Steps): RequestHandler {
  return function route(req, res) {
    res.locals.route = path;
    return steps(req, res).catch(unlessLeft);
  };
}

function unlessLeft(error: unknown): void {
  if (error !== CLIENT_LEFT) throw error;
}
