import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { Secret } from '../secret.ts';
import { redisUrls } from './redis-address.ts';

/** Where Redis is, and how it is reached. */
export interface RedisSettings {
  /**
   * `redis://` or `rediss://`, with user and password if Redis wants them; of a cluster or of Sentinel, with several
   * servers and a comma between.
   */
  readonly url: Secret;
  /** Only with `rediss://`, where it may be left out. */
  readonly tls?: RedisTls | undefined;
  /** The servers of `url` are of a cluster. */
  readonly isCluster?: boolean;
  /** The servers of `url` are sentinels. User and password of `url` are for Redis itself. */
  readonly sentinel?: SentinelSettings | undefined;
  /** How long a command may take, in ms; 500 if it is left out. */
  readonly commandTimeoutMs?: number;
}

/** How Sentinel is asked for the master. */
export interface SentinelSettings {
  /** The name under which Sentinel watches the master. */
  readonly master: string;
  /** User and password for the sentinels, if they ask for them. */
  readonly user: string | undefined;
  readonly password: Secret | undefined;
}

const CONNECT_TIMEOUT_MS = 2_000;
/** How long a server may be silent while a connection begins, in ms: longer than a machine may pause. */
const SILENT_MS = 5_000;

/** User and password of a URL, as the library takes them; both are left out if the URL has none. */
export function userOf(url: Secret): { readonly username?: string; readonly password?: string } {
  const [{ username, password } = new URL('redis://none')] = redisUrls(url.open());
  return {
    ...(username !== '' && { username: decodeURIComponent(username) }),
    ...(password !== '' && { password: decodeURIComponent(password) }),
  };
}

/**
 * The options of a connection to one server, without its address. It ends when it is lost, or by `signal`, and is not
 * made anew.
 */
export function connectionOptions({ tls }: Pick<RedisSettings, 'tls'>, signal: AbortSignal) {
  return {
    // Subscriptions and commands share one connection.
    RESP: 3,
    commandOptions: { timeout: 0 },
    disableOfflineQueue: true,
    // Commands that a user of Redis with few rights may not send, and that the relay does not need.
    disableClientInfo: true,
    maintNotifications: 'disabled',
    socket: {
      ...(tls && tlsSocket(tls)),
      signal,
      connectTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SILENT_MS,
      reconnectStrategy: false,
    },
  } as const;
}

/** How the connection to Redis is encrypted; certificates and the key in PEM form. */
interface RedisTls {
  /** The CAs that may have signed the certificate of Redis. If not set: those that Node.js trusts. */
  readonly ca: string | undefined;
  /** The certificate that the relay shows, with its chain. It is set if `key` is. */
  readonly cert: string | undefined;
  readonly key: Secret | undefined;
  /** The name in the certificate of Redis, if it is not the host of the URL. */
  readonly servername: string | undefined;
}

/** Whether `key` is the private key of the first certificate of `cert`. */
export function isKeyOf(key: Secret, cert: string): boolean {
  return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key.open()));
}

/** The options of the socket for `tls`. */
function tlsSocket({ ca, cert, key, servername }: RedisTls) {
  return {
    tls: true,
    // Also with NODE_TLS_REJECT_UNAUTHORIZED=0.
    rejectUnauthorized: true,
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && key && { cert, key: key.open() }),
    ...(servername !== undefined && { servername }),
  } as const;
}
