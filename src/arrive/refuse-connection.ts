import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type Problem, problemDocument } from '../errors.ts';
import type { Logger } from '../logger.ts';

/** How long a refused connection stays open, so that the client can read the answer, in ms. */
const LINGER_MS = 1_000;

/** Answers with `problem` where no request could be read, and closes the connection. */
export function refuseConnection(socket: Socket, problem: Problem, logger: Logger): void {
  const requestId = randomUUID();
  logger.info({ requestId, status: problem.status, outcome: problem.code }, 'not a request');
  socket.end(rawProblem(problem, requestId));
  // Closing at once could reset the connection before the client has read this.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
  socket.resume();
}

/** A whole response with a problem, for a socket without a request. */
function rawProblem(problem: Problem, requestId: string): string {
  const body = JSON.stringify(problemDocument(problem, requestId));
  const head = [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    'Content-Type: application/problem+json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    'X-Content-Type-Options: nosniff',
    `X-Request-Id: ${requestId}`,
    'Connection: close',
  ].join('\r\n');
  return `${head}\r\n\r\n${body}`;
}
