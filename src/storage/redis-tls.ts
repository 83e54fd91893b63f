import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { Secret } from '../secret.ts';

/** How the connection to Redis is encrypted; certificates and the key in PEM form. */
export interface RedisTls {
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
export function tlsSocket({ ca, cert, key, servername }: RedisTls) {
  return {
    tls: true,
    // Also with NODE_TLS_REJECT_UNAUTHORIZED=0.
    rejectUnauthorized: true,
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && key && { cert, key: key.open() }),
    ...(servername !== undefined && { servername }),
  } as const;
}
