import { adviceFor } from './failure-advice.ts';

/** What the operator can do about errors of Redis, and of TLS where it is another matter than with a web server, by code. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_\w+)$/,
    'If its certificate is of your own CA, name the file of that CA in REDIS_TLS_CA_FILE.',
  ],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    'The certificate is for other names: use one of them in REDIS_URL, or in REDIS_TLS_SERVERNAME.',
  ],
  [
    /^TIMEOUT$/,
    'Look at the route and at the firewalls in between; with rediss://, also at whether TLS is spoken at that port.',
  ],
  [
    /^ERR_SSL_\w*(CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE)$/,
    'If it asks for a client certificate, set REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE.',
  ],
  [
    /^ERR_SSL_\w*ALERT_\w*(UNKNOWN_CA|CERTIFICATE\w*)$/,
    'It does not take the certificate of REDIS_TLS_CERT: look at its CA, and when it runs out.',
  ],
  [/^MOVED$/, 'It is a cluster: set REDIS_MODE to cluster.'],
  [/^NEWMASTER$/, 'Another master takes over at this moment: try again.'],
  [/^CLUSTERDOWN$/, 'Look with redis-cli --cluster check at which slots have no master.'],
  [/^NOMASTER$/, 'Sentinel watches no master of this name: look at REDIS_SENTINEL_MASTER.'],
  [/^ERR$/, 'Look at REDIS_MODE: at that address may be another kind of Redis.'],
];

/** What to do about an error with this code, if it is one of Redis. */
export function redisAdviceFor(code: string): string {
  return ADVICE.find(([pattern]) => pattern.test(code))?.[1] ?? adviceFor(code);
}
