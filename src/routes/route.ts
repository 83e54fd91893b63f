import type { Express, RequestHandler } from 'express';
import { methodNotAllowed } from '../arrive/problem-response.ts';

/** The stages of one path, by method; HEAD is taken with GET. */
export interface Methods {
  readonly get?: RequestHandler[];
  readonly post?: RequestHandler[];
}

/** One exact path and what it takes, as the log and the metrics name it; every other method is refused with `Allow`. */
export function route(app: Express, path: string, { get, post }: Methods): void {
  const named: RequestHandler = (_req, res, next) => {
    res.locals.route = path;
    next();
  };
  if (get) app.get(path, named, ...get);
  if (post) app.post(path, named, ...post);
  const allow = [...(get ? ['GET, HEAD'] : []), ...(post ? ['POST'] : [])].join(', ');
  app.all(path, named, methodNotAllowed(allow));
}

/** Marks a request that only asks how the relay is. */
export const probe: RequestHandler = (_req, res, next) => {
  res.locals.isProbe = true;
  next();
};
