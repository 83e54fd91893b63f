import type { ErrorRequestHandler, Response } from 'express';
import { asProblem, isFault, Problem, problemDocument, problemHeaders, recordOutcome } from '../errors.ts';
import { breakOff } from '../http/client-connection.ts';
import type { Logger } from '../logger.ts';

/** How long the rest of a refused request's body is read and dropped, in ms. */
const READ_REST_MS = 2_000;

/**
 * The last stage of every request that failed: answers with a problem details document (RFC 9457). An error that is not
 * a Problem is a fault of the relay. It is logged with its stack and the request id, and answered as `internal_error`,
 * without any detail. If the headers were sent already, the connection is cut.
 */
export function problemResponse(logger: Logger): ErrorRequestHandler {
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  return function problemResponse(error: unknown, _req, res, _next) {
    // The router throws a URIError for a path with a broken percent-encoding, which matches no route.
    const problem = error instanceof URIError ? notFound() : asProblem(error);
    if (isFault(problem)) {
      logger.error({ requestId: res.locals.requestId, err: problem.cause }, 'fault');
    }
    recordOutcome(res.locals, problem);
    if (res.headersSent) breakOff(res);
    else sendProblem(problem, res);
  };
}

/** The refusal of every path that no route takes. */
export function notFound(): Problem {
  return new Problem('not_found', 'There is nothing at this path.');
}

/** The refusal of a method that the path does not take; `allow` lists those that it takes (RFC 9110 §15.5.6). */
export function methodNotAllowed(allow: string): Problem {
  return new Problem('method_not_allowed', `This path takes ${allow}.`, { headers: { Allow: allow } });
}

function sendProblem(problem: Problem, res: Response): void {
  const body = Buffer.from(JSON.stringify(problemDocument(problem, res.locals.requestId)));
  for (const [name, value] of Object.entries(problemHeaders(problem))) res.setHeader(name, value);
  res.statusCode = problem.status;
  res.setHeader('Content-Type', 'application/problem+json');
  res.setHeader('Content-Length', body.length);
  if (res.req.complete) res.end(body);
  else endAfterRequest(res, body);
}

/**
 * Writes the answer to a client that still sends its body, and ends the answer only after the body. An earlier end can
 * close the connection, and the client, which still sends, could lose the answer by a reset. After `READ_REST_MS` the
 * connection is closed, so that no client can make the relay read for ever.
 */
function endAfterRequest(res: Response, body: Buffer): void {
  const { req } = res;
  const timer = setTimeout(() => req.socket.destroy(), READ_REST_MS).unref();
  res.write(body);
  // A request also emits `close` when all of it has arrived.
  req.once('close', () => {
    clearTimeout(timer);
    res.end();
  });
  req.resume();
}
