import type { Socket } from 'node:net';
import { buildConnector, Client, type Dispatcher } from 'undici';

/**
 * An idle connection is dropped after this time, in ms: sooner than common servers drop theirs (5 s and
 * more), so that a message is not sent into a connection that is just being closed. A shorter
 * `Keep-Alive: timeout` of the service wins, less `IDLE_MARGIN_MS`.
 */
const IDLE_MS = 4_000;
const IDLE_MARGIN_MS = 1_000;
const MAX_IDLE = 256;

/** One connection to the bot service, for one request at a time. */
export interface Connection {
  /** Hands a request to the connection, which is opened first if need be (undici's `Dispatcher.dispatch`). */
  dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void;
  /** The answer has come to its end: the connection may serve another request. */
  release(): void;
  /** Closes the connection, whether it is open or still being opened. */
  close(): void;
  /** What it was opened on last: a request opens it anew where the service has closed it meanwhile. */
  socket(): Socket | undefined;
  /** Whether the connection broke rather than ended. */
  hasError(): boolean;
}

export interface Connections {
  /** An idle connection, the one that was used last; otherwise a new one. */
  take(): Connection;
  /** Closes what is idle, now and later. */
  close(): void;
}

/**
 * Connections to the bot service at `origin`, kept between requests. There is no upper bound: the open streams are
 * bounded by the endpoints' budgets already. Each is an undici `Client` of its own, since a `Pool` looks through all
 * its busy clients for each request. None sends a request again whose first byte has left.
 */
export function connectionsTo(origin: string): Connections {
  const idle: Connection[] = [];
  /** A TLS session of the service, so that the next handshake is short (RFC 8446 §2.2). */
  let tlsSession: Buffer | undefined;
  let closed = false;

  function open(): Connection {
    const opening = new AbortController();
    let socket: Socket | undefined;
    const client = new Client(origin, {
      allowH2: false,
      pipelining: 1,
      // The relay's own deadlines hold.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
      connect(options, callback) {
        const connect = buildConnector({
          allowH2: false,
          timeout: 0,
          signal: opening.signal,
          ...(tlsSession && { session: tlsSession }),
        });
        connect(options, (error, opened) => {
          if (error) return callback(error, null);
          socket = opened as Socket;
          socket.on('session', (session: Buffer) => {
            tlsSession = session;
          });
          callback(null, socket);
        });
      },
    });
    const connection: Connection = {
      dispatch: (request, handler) => void client.dispatch(request, handler),
      release() {
        if (closed || idle.length >= MAX_IDLE || socket?.destroyed !== false) connection.close();
        else idle.push(connection);
      },
      close() {
        opening.abort();
        void client.destroy();
      },
      socket: () => socket,
      hasError: () => Boolean(socket?.errored),
    };
    client.on('disconnect', () => {
      const at = idle.indexOf(connection);
      if (at < 0) return;
      idle.splice(at, 1);
      connection.close();
    });
    return connection;
  }

  return {
    take: () => idle.pop() ?? open(),
    close() {
      closed = true;
      for (const connection of idle.splice(0)) connection.close();
    },
  };
}
