import type { ErrorRequestHandler, Response } from 'express';
import { Problem, problemDocument, problemHeaders, recordOutcome } from '../errors.ts';
import type { Logger } from '../logger.ts';

/** How long the rest of a refused request's body is read and dropped, in ms. */
const LINGER_MS = 2_000;

/**
 * Answers with a problem details document (RFC 9457): the last stage of every request that failed.
 * What is not a Problem is a fault of ours: logged with its stack and the request id, and answered as
 * `internal_error` with nothing of it. After the headers went, the connection is cut.
 */
export function problemResponse(logger: Logger): ErrorRequestHandler {
  return function problemResponse(error: unknown, _req, res, _next) {
    const problem = asProblem(error);
    if (problem.code === 'internal_error' || problem.cause instanceof Error) {
      logger.error({ requestId: res.locals.requestId, err: problem.cause }, 'fault');
    }
    recordOutcome(res.locals, problem);
    if (res.headersSent) res.destroy();
    else sendProblem(problem, res);
  };
}

/** The refusal of every path that no route takes. */
export function notFound(): Problem {
  return new Problem('not_found', 'There is nothing at this path.');
}

/** Refuses every method that the path's routes did not take; `allow` is what they do take (RFC 9110 §15.5.6). */
export function methodNotAllowed(allow: string): () => never {
  return function methodNotAllowed() {
    throw new Problem('method_not_allowed', `This path takes ${allow}.`, { headers: { Allow: allow } });
  };
}

function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  // The router throws this for a path with a broken percent-encoding: no route can be meant by it.
  if (error instanceof URIError) return notFound();
  return new Problem('internal_error', 'The relay failed; its log says more under this request id.', {
    cause: error,
  });
}

function sendProblem(problem: Problem, res: Response): void {
  const body = Buffer.from(JSON.stringify(problemDocument(problem, res.locals.requestId)));
  for (const [name, value] of Object.entries(problemHeaders(problem))) res.setHeader(name, value);
  res.statusCode = problem.status;
  res.setHeader('Content-Type', 'application/problem+json');
  res.setHeader('Content-Length', body.length);
  if (res.req.complete) res.end(body);
  else endBehindRequest(res, body);
}

/**
 * Writes the answer to a client that still sends its body, and ends it only when the body is over: ending would
 * close some connections at once, and a client that is still sending could lose the answer to a reset. After
 * a moment the connection is closed all the same, so that nobody can make us read on and on.
 */
function endBehindRequest(res: Response, body: Buffer): void {
  const { req } = res;
  const timer = setTimeout(() => req.socket.destroy(), LINGER_MS).unref();
  res.write(body);
  // Closed is a request once all of it has come, too.
  req.once('close', () => {
    clearTimeout(timer);
    res.end();
  });
  req.resume();
}
