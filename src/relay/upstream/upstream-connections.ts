import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { type IdleLimit, idleLimit } from './idle-limit.ts';

/**
 * An idle connection is closed after this time, in ms: sooner than common servers close theirs (5 s and more), so that
 * no message is sent on a connection that the service is closing. What was seen of the service is in `idle-limit.ts`.
 */
const IDLE_MS = 4_000;
/** A shorter `Keep-Alive: timeout` of the service counts, minus this, in ms. */
const IDLE_MARGIN_MS = 1_000;
const MAX_IDLE = 256;

const CLIENT_OPTIONS: Client.Options = {
  allowH2: false,
  pipelining: 1,
  // The relay has its own deadlines.
  headersTimeout: 0,
  bodyTimeout: 0,
  keepAliveTimeout: IDLE_MS,
  keepAliveMaxTimeout: IDLE_MS,
  keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
};

/** undici would keep a TLS session only until garbage is collected. */
const CONNECTOR_OPTIONS = { allowH2: false, timeout: 0, maxCachedSessions: 0 };

/** One connection to the bot service, for one request at a time. */
export interface UpstreamConnection {
  /** Sends a request; opens the connection first if necessary (undici's `Dispatcher.dispatch`). */
  dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void;
  /** Whether its socket was opened for an earlier request. */
  isKept(): boolean;
  /** Whether it has been kept for too long to send a request on it. False if it was opened for this request. */
  isStale(): boolean;
  /** The first byte of an answer has arrived. */
  answering(): void;
  /** The answer's `Keep-Alive` field, if it has one. */
  announced(keepAlive: string | string[] | undefined): void;
  /** The answer has ended. It may have done so earlier, by as long as it was not read: `pausedMs`. */
  answered(pausedMs: number): void;
  /** The connection may be used for another request. */
  release(): void;
  /** Closes the connection, whether it is open or still being opened. */
  close(): void;
  /** Its latest socket: a request opens a new one if the service has closed the last. */
  socket(): Socket | undefined;
  /** Whether the connection broke instead of ending. */
  hasError(): boolean;
}

export interface Connections {
  /** The idle connection that was used last, or a new one if that is stale. */
  take(): UpstreamConnection;
  /** Closes idle connections, now and later. */
  close(): void;
}

/**
 * A pool of connections to the bot service at `origin`. Their number has no limit here, since the endpoints' budgets
 * limit the open streams. Each connection is its own undici `Client`: undici's `Pool` would search all busy clients for
 * each request. No connection sends a request again after its first byte was sent.
 */
export function connectionsTo(origin: string): Connections {
  const connect = buildConnector(CONNECTOR_OPTIONS);
  const pool: Pool = { origin: new URL(origin), connect, idle: [], limit: idleLimit(), closed: false };
  return {
    take() {
      const latest = pool.idle.at(-1);
      // If the one that was used last is too old, all are.
      if (!latest || isStale(latest, pool)) return open(pool);
      pool.idle.pop();
      return latest.connection;
    },
    close() {
      pool.closed = true;
      for (const { connection } of pool.idle.splice(0)) connection.close();
    },
  };
}

/** What the connections to one origin share. */
interface Pool {
  readonly origin: URL;
  /**
   * Opens a socket. Made anew for each TLS session of the service, so that the next handshake is short (RFC 8446 §2.2).
   */
  connect: buildConnector.connector;
  /** The longest idle first. */
  readonly idle: Kept[];
  readonly limit: IdleLimit;
  /** Whether a connection that becomes idle is closed. */
  closed: boolean;
}

/** A connection and its latest socket. */
interface Kept {
  readonly connection: UpstreamConnection;
  socket: Socket | undefined;
  /** Since when it is idle; undefined from the first byte of an answer to its end. */
  idleSince: number | undefined;
  /** Whether it was released since its socket was opened. */
  isKept: boolean;
  /** For how long the connection may be idle, by what the service has announced, in ms. */
  maxIdleMs: number;
}

function isStale({ isKept, idleSince, maxIdleMs }: Kept, { limit }: Pool): boolean {
  if (!isKept || idleSince === undefined) return false;
  return performance.now() - idleSince >= Math.min(maxIdleMs, limit.ms());
}

function open(pool: Pool): UpstreamConnection {
  let opening: Socket | undefined;
  const connect: buildConnector.connector = (options, callback) => {
    const socket: unknown = pool.connect(options, (error, opened) => {
      if (error) return callback(error, null);
      onOpen(kept, pool, opened);
      callback(null, opened);
    });
    // undici 8 returns the socket, though its types do not say so. A signal would cost memory while the socket is open.
    if (socket instanceof Socket) opening = socket;
  };
  const client = new Client(pool.origin, { ...CLIENT_OPTIONS, connect });
  const connection: UpstreamConnection = {
    dispatch: (request, handler) => void client.dispatch(request, handler),
    isKept: () => kept.isKept,
    isStale: () => isStale(kept, pool),
    answering() {
      kept.idleSince = undefined;
    },
    announced(keepAlive) {
      kept.maxIdleMs = maxIdleMs(keepAlive);
    },
    answered(pausedMs) {
      kept.idleSince = performance.now() - pausedMs;
    },
    release: () => release(kept, pool),
    close() {
      void client.destroy();
      opening?.destroy();
    },
    socket: () => kept.socket,
    hasError: () => Boolean(kept.socket?.errored),
  };
  const kept: Kept = { connection, ...NEW };
  client.on('disconnect', (_origin, _clients, { code }: Error & { code?: string }) => {
    learn(kept, pool, code);
    const at = pool.idle.indexOf(kept);
    if (at < 0) return;
    pool.idle.splice(at, 1);
    connection.close();
  });
  return connection;
}

const NEW = { socket: undefined, idleSince: undefined, isKept: false, maxIdleMs: IDLE_MS };

/** What `Keep-Alive: timeout=5, max=100` allows (RFC 2068 §19.7.1.1), less the margin, in ms. */
function maxIdleMs(keepAlive: string | string[] | undefined): number {
  const seconds = /timeout=(\d+)/i.exec(String(keepAlive))?.[1];
  return seconds === undefined ? IDLE_MS : Math.min(Number(seconds) * 1000 - IDLE_MARGIN_MS, IDLE_MS);
}

/** Keeps the connection for another request, in the order of idleness. */
function release(kept: Kept, pool: Pool): void {
  const { idle } = pool;
  kept.isKept = true;
  if (pool.closed || kept.socket?.destroyed !== false) {
    kept.connection.close();
    return;
  }
  const { idleSince = 0 } = kept;
  let at = idle.length;
  while (at > 0 && (idle[at - 1]?.idleSince ?? 0) > idleSince) at--;
  idle.splice(at, 0, kept);
  if (idle.length > MAX_IDLE) idle.shift()?.connection.close();
}

/** How a connection ends that the relay closes. */
const CLOSED_BY_RELAY = 'UND_ERR_DESTROYED';

/** Learns from the end of a kept connection on which no byte of an answer has arrived; `code` is undici's reason. */
function learn({ isKept, idleSince }: Kept, { limit }: Pool, code: string | undefined): void {
  if (!isKept || idleSince === undefined || code === CLOSED_BY_RELAY) return;
  const ageMs = performance.now() - idleSince;
  // undici's own timer has closed it.
  limit.ended(ageMs, code === 'UND_ERR_INFO' ? 'relay' : 'service');
}

function onOpen(kept: Kept, pool: Pool, socket: Socket): void {
  Object.assign(kept, { socket, isKept: false, idleSince: performance.now(), maxIdleMs: IDLE_MS });
  if (!(socket instanceof TLSSocket)) return;
  socket.on('session', (session) => {
    pool.connect = buildConnector({ ...CONNECTOR_OPTIONS, session });
  });
}
