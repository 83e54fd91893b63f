type Advice = readonly (readonly [code: RegExp, advice: string])[];

/** What the operator can do about an error of the system or of TLS, by its code. */
const ADVICE: Advice = [
  [/^ENOTFOUND$/, 'Nothing has this name: look for a misspelling, and at the DNS of this machine.'],
  [/^EAI_AGAIN$/, 'The name server did not answer: look at the DNS of this machine.'],
  [/^ECONNREFUSED$/, 'Nothing listens there: look at the host and the port, and whether it runs.'],
  [/^(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)$/, 'Look at the route and at the firewalls in between.'],
  [
    /^(ECONNRESET|EPIPE|CLOSED)$/,
    'It closed the connection: look at the port, at whether it expects TLS or not, and at what stands in between.',
  ],
  [/^(EPROTO|ERR_SSL_)/, 'It does not speak TLS there, or no version that Node.js takes: look at the port.'],
  [/^CERT_HAS_EXPIRED$/, 'Have the certificate renewed; and look at the clock of this machine.'],
  [/^CERT_NOT_YET_VALID$/, 'Look at the clock of this machine, then at the certificate.'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'The certificate is for other names: use one of them as the host.'],
  [
    /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN)$/,
    'If this is your own CA: NODE_EXTRA_CA_CERTS=ca.pem in the environment (not in .env), here and for the relay.',
  ],
  [
    /^UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT(_LOCALLY)?)$/,
    'It must send its whole chain; of a CA of your own, name the file in NODE_EXTRA_CA_CERTS (not in .env).',
  ],
];

/** What the operator can do about an error of Redis; other errors are looked for in `ADVICE`. */
const ADVICE_ON_REDIS: Advice = [
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
  [
    /^(WRONGPASS|NOAUTH|NOPERM)$/,
    'Look at the user and the password in REDIS_URL, and what that user may do.',
  ],
  [/^READONLY$/, 'This is a replica: REDIS_URL must lead to the primary.'],
  [/^MOVED$/, 'It is a cluster: set REDIS_MODE to cluster.'],
  [/^NEWMASTER$/, 'Another master takes over at this moment: try again.'],
  [/^CLUSTERDOWN$/, 'Look with redis-cli --cluster check at which slots have no master.'],
  [/^NOMASTER$/, 'Sentinel watches no master of this name: look at REDIS_SENTINEL_MASTER.'],
  [/^ERR$/, 'Look at REDIS_MODE: at that address may be another kind of Redis.'],
];

/** What to do about an error with this code. */
export function adviceFor(code: string): string {
  return find(ADVICE, code) ?? 'Look at the host, the port and the network.';
}

/** What to do about an error with this code, if it is one of Redis. */
export function redisAdviceFor(code: string): string {
  return find(ADVICE_ON_REDIS, code) ?? adviceFor(code);
}

/** What to do about a problem that the relay answers with, by its code. */
const ADVICE_ON_PROBLEMS: Readonly<Record<string, string>> = {
  busy: 'Too many people sign in at this moment: try again, and start more instances if it stays.',
  cross_site_request: 'Set PUBLIC_URL, and let the load balancer pass Origin and Sec-Fetch-Site on.',
  identity_provider_unavailable:
    'The running relay does not get through to the identity provider: look at its log, and at OIDC_ISSUER.',
  invalid_credentials: 'Look at --user and at the password; a wrong one counts as a failed sign-in.',
  operation_not_enabled:
    'The running relay has other OPERATIONS, or another BOTS_FILE, than this configuration: restart it.',
  rate_limited: 'The bot is busy: try again.',
  unknown_bot: 'The running relay has other BOTS than this configuration: restart it.',
  unknown_host: 'Let the load balancer pass Host on as it came; or add what it sends to ALLOWED_HOSTS.',
  upstream_key_rejected:
    'The running relay has other keys than this configuration: restart it, or send it SIGHUP.',
  upstream_rate_limited: 'The bot is busy: try again.',
};

/**
 * What to do about a problem with this code, or about an answer that is none of the relay if there is no code. `own` are
 * other texts for some codes; the one for `none` is for such an answer.
 */
export function adviceOnProblem(
  code = 'none',
  own: Readonly<Record<string, string>> & { readonly none: string },
): string {
  return own[code] ?? ADVICE_ON_PROBLEMS[code] ?? 'Look for this request in the log of the relay.';
}

/** The code of an error, or its name. */
export function codeOf(error: unknown): string {
  const { code, name } = error as NodeJS.ErrnoException;
  return code ?? name ?? 'unknown';
}

function find(list: Advice, code: string): string | undefined {
  return list.find(([pattern]) => pattern.test(code))?.[1];
}
