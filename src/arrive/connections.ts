import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Express } from 'express';
import { Problem } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { readRequests } from './read-requests.ts';
import { refuseConnection } from './refuse-connection.ts';

const STALLED_MS = 60_000;
/** How many requests of a connection may wait behind the one that is served. */
const MAX_WAITING = 4;

/** What goes on on one connection. */
interface Connection {
  /** The answers that are not over. Pipelined requests can come before the end of the first. */
  readonly answers: Set<ServerResponse>;
  latest?: ServerResponse;
  /** Had too much at once: what the parser still finds is dropped. */
  cut?: boolean;
}

export interface ConnectionsOptions {
  readonly logger: Logger;
  /** How long a client may read nothing of an answer that is complete, in ms. */
  readonly stalledMs?: number;
  /** Told of every connection that was cut because too many requests, or too much of one, waited on it. */
  readonly onConnectionCut?: (() => void) | undefined;
}

export interface Connections {
  /** From now on, closes every connection as soon as it is idle. */
  closeWhenIdle(): void;
  /** Closes the connections on which no answer is under way, whatever they have sent. */
  closeUnanswering(): void;
}

/** A server with its connections, and what is done with what comes on them. */
interface Serving {
  readonly server: Server;
  readonly app: Express;
  readonly logger: Logger;
  readonly stalledMs: number;
  readonly onConnectionCut: () => void;
  readonly connections: Map<Socket, Connection>;
  draining: boolean;
}

/**
 * Hands the requests of `server` to the application, and keeps its connections in order: what does not become
 * a request is answered with a problem as well (malformed HTTP, timeouts, CONNECT), no answer is held for a
 * client that does not read it, no more than a few requests of a connection wait for their turn, and while draining
 * nothing idle is kept.
 */
export function serveConnections(
  server: Server,
  app: Express,
  { logger, stalledMs = STALLED_MS, onConnectionCut = () => {} }: ConnectionsOptions,
): Connections {
  const connections = new Map<Socket, Connection>();
  const serving: Serving = { server, app, logger, stalledMs, onConnectionCut, connections, draining: false };
  const onRequest = (req: IncomingMessage, res: ServerResponse) => serve(serving, req, res);
  server.on('connection', (socket: Socket) => accept(serving, socket));
  server.on('request', onRequest);
  // An unknown expectation may be ignored (RFC 9110 §10.1.1).
  server.on('checkExpectation', onRequest);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) =>
    refuse(serving, socket, problemOf(error)),
  );
  server.on('connect', (_req, socket: Socket) => {
    // The server has let go of this socket: a reset would be nobody's, and end the process.
    socket.on('error', () => {});
    refuse(serving, socket, new Problem('bad_request', 'This server is no proxy.'));
  });
  return {
    closeWhenIdle() {
      serving.draining = true;
    },
    closeUnanswering() {
      for (const [socket, { answers }] of connections) if (answers.size === 0) socket.destroy();
    },
  };
}

function accept(serving: Serving, socket: Socket): void {
  const { connections } = serving;
  const connection: Connection = { answers: new Set() };
  connections.set(socket, connection);
  socket.once('close', () => connections.delete(socket));
  socket.on('pause', () => {
    // The body of a request that waits is too large to be kept. Nobody reads it, and on a connection that is not
    // read from, nothing tells that the client of the request that is served has left.
    const { answers, latest } = connection;
    if (answers.size > 1 && latest?.req.complete === false) cut(serving, socket, connection);
  });
  readRequests(socket, {
    isOpen: () => !connection.cut && socket.writable,
    isBetweenMessages: () => connection.latest?.req.complete !== false,
    onForeignProtocol: () => refuse(serving, socket, new Problem('bad_request', 'This is not HTTP.')),
  });
}

/** Has the application answer, behind the answers that are under way on the connection. */
function serve(serving: Serving, req: IncomingMessage, res: ServerResponse): void {
  const { server, app, stalledMs, connections } = serving;
  const connection = connections.get(req.socket) as Connection;
  if (connection.cut) return;
  if (connection.answers.size > MAX_WAITING) {
    cut(serving, req.socket, connection);
    return;
  }
  const { latest } = connection;
  const isFirst = connection.answers.size === 0;
  connection.answers.add(res);
  connection.latest = res;
  // The answer behind this one must not inherit its timeout.
  res.once('finish', () => connection.answers.size > 1 && req.socket.setTimeout(0));
  // Starts anew whenever some of the answer has gone out; once it has gone, the server sets the time of an idle one.
  res.once('prefinish', () => res.setTimeout(stalledMs, () => res.destroy()));
  res.once('close', () => {
    connection.answers.delete(res);
    if (serving.draining) server.closeIdleConnections();
  });
  // One after the other: an answer whose turn has not come has no socket to be cut on. None behind one that ends the
  // connection, such as a stream in HTTP/1.0: its message would run, and nobody would get the answer.
  if (isFirst || latest === undefined) app(req, res);
  else latest.once('close', () => req.socket.writable && app(req, res));
}

function cut({ logger, onConnectionCut }: Serving, socket: Socket, connection: Connection): void {
  connection.cut = true;
  socket.destroy();
  logger.info({ most: MAX_WAITING + 1 }, 'too many requests at once on a connection');
  onConnectionCut();
}

/** Answers with `problem` and closes, or just closes where an answer would stand in the middle of another or behind it. */
function refuse({ connections, logger }: Serving, socket: Socket, problem: Problem): void {
  // Refused already: whatever else comes is one more error of the parser, and is dropped.
  if (socket.writableEnded) return;
  const { answers = new Set<ServerResponse>(), latest } = connections.get(socket) ?? {};
  const midAnswer = [...answers].some(({ headersSent }) => headersSent);
  const answered = latest?.req.complete === false && answers.size === 0;
  if (midAnswer || answered || !socket.writable) socket.destroy();
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
