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

const CLIENT_OPTIONS: Client.Options = {
  allowH2: false,
  pipelining: 1,
  // The relay's own deadlines hold.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: IDLE_MS,
  keepAliveMaxTimeout: IDLE_MS,
  keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
};

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
  const kept: Kept = { origin, idle: [], tlsSession: undefined, closed: false };
  return {
    take: () => kept.idle.pop() ?? open(kept),
    close() {
      kept.closed = true;
      for (const connection of kept.idle.splice(0)) connection.close();
    },
  };
}

/** What the connections to one origin share. */
interface Kept {
  readonly origin: string;
  readonly idle: Connection[];
  /** A TLS session of the service, so that the next handshake is short (RFC 8446 §2.2). */
  tlsSession: Buffer | undefined;
  /** Whether a connection that becomes idle is closed. */
  closed: boolean;
}

function open(kept: Kept): Connection {
  const { origin, idle } = kept;
  const opening = new AbortController();
  let socket: Socket | undefined;
  const connect = connector(kept, opening.signal, (opened) => {
    socket = opened;
  });
  const client = new Client(origin, { ...CLIENT_OPTIONS, connect });
  const connection: Connection = {
    dispatch: (request, handler) => void client.dispatch(request, handler),
    release() {
      if (kept.closed || idle.length >= MAX_IDLE || socket?.destroyed !== false) connection.close();
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

/** How one connection is opened, until `signal` aborts that; `onOpen` gets the socket before anything is sent on it. */
function connector(
  kept: Kept,
  signal: AbortSignal,
  onOpen: (socket: Socket) => void,
): buildConnector.connector {
  return (options, callback) => {
    const connect = buildConnector({
      allowH2: false,
      timeout: 0,
      signal,
      ...(kept.tlsSession && { session: kept.tlsSession }),
    });
    connect(options, (error, opened) => {
      if (error) return callback(error, null);
      const socket = opened as Socket;
      onOpen(socket);
      socket.on('session', (session: Buffer) => {
        kept.tlsSession = session;
      });
      callback(null, socket);
    });
  };
}
