import { randomUUID } from 'node:crypto';
import { IncomingMessage, type Server, type ServerOptions, ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Express, Request, Response } from 'express';
import { Problem, problemDocument } from '../errors.ts';
import { breakOff } from '../http/client-connection.ts';
import { newLocals } from '../http/locals.ts';
import type { Logger } from '../logger.ts';
import type { ConnectionBounds } from './connection-bounds.ts';
import { feedParser } from './feed-parser.ts';

/** The default of `stalledMs`. */
const STALLED_MS = 60_000;
/** How many pipelined requests of a connection may wait behind the one that is served. */
const MAX_WAITING = 4;

/** The state of one connection. */
interface ClientConnection {
  /** The answers that are not complete. There are several if the client pipelines its requests. */
  readonly answers: Set<ServerResponse>;
  latest?: ServerResponse;
  /** True once the connection was cut for too many requests: requests that the parser still finds are dropped. */
  cut?: boolean;
}

export interface ConnectionsOptions {
  readonly logger: Logger;
  readonly bounds: ConnectionBounds;
  /** How long a client may read nothing of an answer that the relay has finished writing, in ms. */
  readonly stalledMs?: number;
  /** Called for every connection that was cut because too many requests, or too large ones, waited on it. */
  readonly onConnectionCut?: (() => void) | undefined;
}

interface ServedConnections {
  /** From now on, closes every connection as soon as it is idle. */
  closeWhenIdle(): void;
  /** Closes the connections on which no answer is under way, even if a part of a request has arrived. */
  closeUnlessAnswering(): void;
}

/** A server with its connections, and what its functions share. */
interface Serving {
  readonly server: Server;
  readonly app: Express;
  readonly logger: Logger;
  readonly bounds: ConnectionBounds;
  readonly stalledMs: number;
  readonly onConnectionCut: () => void;
  readonly connections: Map<Socket, ClientConnection>;
  draining: boolean;
}

/**
 * Hands the requests of `server` to the application, one after the other for each connection. Malformed HTTP, late
 * requests and CONNECT are answered with a problem, too. A connection is closed if its client does not read a complete
 * answer for `stalledMs`, or pipelines more than a few requests, or is idle while the relay drains or at the bound
 * of connections.
 */
export function serveConnections(
  server: Server,
  app: Express,
  { logger, bounds, stalledMs = STALLED_MS, onConnectionCut = () => {} }: ConnectionsOptions,
): ServedConnections {
  const connections = new Map<Socket, ClientConnection>();
  const options = { logger, bounds, stalledMs, onConnectionCut };
  const serving: Serving = { server, app, ...options, connections, draining: false };
  const onRequest = (req: IncomingMessage, res: ServerResponse) => serve(serving, req, res);
  server.on('connection', (socket: Socket) => accept(serving, socket));
  server.on('request', onRequest);
  // An unknown expectation may be ignored (RFC 9110 §10.1.1).
  server.on('checkExpectation', onRequest);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) =>
    refuse(serving, socket, problemOf(error)),
  );
  server.on('connect', (_req, socket: Socket) => {
    // The server no longer handles errors of this socket: without a listener, a reset would end the process.
    socket.on('error', () => {});
    refuse(serving, socket, new Problem('bad_request', 'This server is not a proxy.'));
  });
  return {
    closeWhenIdle() {
      serving.draining = true;
    },
    closeUnlessAnswering() {
      for (const [socket, { answers }] of connections) if (answers.size === 0) socket.destroy();
    },
  };
}

function accept(serving: Serving, socket: Socket): void {
  const { connections, bounds } = serving;
  if (!bounds.take(socket)) return;
  const connection: ClientConnection = { answers: new Set() };
  connections.set(socket, connection);
  socket.once('close', () => connections.delete(socket));
  socket.on('pause', () => {
    // The socket is no longer read, since a waiting request has a body that is too large to be buffered. Then it would
    // not be noticed if the client leaves during the answer before it.
    const { answers, latest } = connection;
    if (answers.size > 1 && latest?.req.complete === false) cut(serving, socket, connection);
  });
  feedParser(socket, {
    isOpen: () => !connection.cut && socket.writable,
    isBetweenMessages: () => connection.latest?.req.complete !== false,
    inBodyOf: () => (connection.latest?.req.complete === false ? connection.latest.req : undefined),
    onForeignProtocol: () => refuse(serving, socket, new Problem('bad_request', 'This is not HTTP.')),
  });
}

/** Has the application answer, after the answers that are under way on the connection. */
function serve(serving: Serving, req: IncomingMessage, res: ServerResponse): void {
  const { server, app, bounds, stalledMs, connections } = serving;
  const connection = connections.get(req.socket) as ClientConnection;
  if (connection.cut) return;
  if (connection.answers.size > MAX_WAITING) {
    cut(serving, req.socket, connection);
    return;
  }
  const { latest } = connection;
  const isFirst = connection.answers.size === 0;
  connection.answers.add(res);
  bounds.setIdle(req.socket, false);
  connection.latest = res;
  // Ends the timeout of the answer before, which is one of the socket.
  if (!isFirst) latest?.on('finish', () => req.socket.setTimeout(0));
  // The timer restarts whenever the client reads; after the last byte the server sets the timeout of an idle connection.
  res.on('prefinish', () => isWaitedFor(res) && res.setTimeout(stalledMs, () => breakOff(res)));
  res.on('close', () => {
    connection.answers.delete(res);
    if (connection.answers.size === 0) bounds.setIdle(req.socket, true);
    if (serving.draining) server.closeIdleConnections();
  });
  // One after the other, since an answer that waits for its turn has no socket yet. No request is served after an answer
  // that ends the connection, such as a stream in HTTP/1.0: its message would run, and its answer would be lost.
  if (isFirst || latest === undefined) app(req, res);
  else latest.once('close', () => req.socket.writable && app(req, res));
}

/** Whether the system has not taken all of the answer yet. It nearly always has, and then no timer is needed. */
function isWaitedFor({ socket }: ServerResponse): boolean {
  return socket === null || socket.writableLength > 0;
}

function cut({ logger, onConnectionCut }: Serving, socket: Socket, connection: ClientConnection): void {
  connection.cut = true;
  socket.destroy();
  logger.info({ most: MAX_WAITING + 1 }, 'too many requests at once on a connection');
  onConnectionCut();
}

/**
 * Answers with `problem` and closes the connection. Closes it without an answer where another answer has begun, or was
 * sent before its request was complete: the client would take this one for a part of it.
 */
function refuse({ connections, logger }: Serving, socket: Socket, problem: Problem): void {
  // It was refused before: the parser reports an error for everything that follows.
  if (socket.writableEnded) return;
  const { answers = new Set<ServerResponse>(), latest } = connections.get(socket) ?? {};
  const isAnswering = [...answers].some(({ headersSent }) => headersSent);
  const isAnswered = latest?.req.complete === false && answers.size === 0;
  if (isAnswering || isAnswered || !socket.writable) socket.destroy();
  else refuseConnection(socket, problem, logger);
}

function problemOf({ code }: NodeJS.ErrnoException): Problem {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new Problem('request_timeout', 'The request did not arrive in time.');
  }
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new Problem('headers_too_large', 'The request headers are too large.');
  }
  return new Problem('bad_request', 'The request is not valid HTTP.');
}

/**
 * Makes the classes of the requests and answers of a server that serves `app` alone. They have the application's methods
 * from the start: Express would change the prototype of each request and each answer, and keep its locals in an object
 * without a shape, which slows down all that is done with them.
 */
export function messageClasses(app: Express): Pick<ServerOptions, 'IncomingMessage' | 'ServerResponse'> {
  class AppRequest extends IncomingMessage {}
  class AppResponse<One extends IncomingMessage> extends ServerResponse<One> {
    readonly locals = newLocals();
  }
  Object.setPrototypeOf(AppRequest.prototype, app.request);
  Object.setPrototypeOf(AppResponse.prototype, app.response);
  app.request = AppRequest.prototype as Request;
  app.response = AppResponse.prototype as Response;
  return { IncomingMessage: AppRequest, ServerResponse: AppResponse };
}

/** How long a refused connection stays open, so that the client can read the answer, in ms. */
const LINGER_MS = 1_000;

/** Answers with `problem` where no request could be read, and closes the connection. */
function refuseConnection(socket: Socket, problem: Problem, logger: Logger): void {
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
