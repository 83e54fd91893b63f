/** What the operator can do about an error of the system, of TLS or of Redis, by its code. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/^ENOTFOUND$/, 'Nothing has this name: look for a misspelling, and at the DNS of this machine.'],
  [/^EAI_AGAIN$/, 'The name server did not answer: look at the DNS of this machine.'],
  [/^ECONNREFUSED$/, 'Nothing listens there: look at the host and the port, and whether it runs.'],
  [/^(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|TIMEOUT)$/, 'Look at the route and at the firewalls in between.'],
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
    /^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?)$/,
    'It must send its whole chain; of a CA of your own, name the file in NODE_EXTRA_CA_CERTS (not in .env).',
  ],
  [
    /^(WRONGPASS|NOAUTH|NOPERM)$/,
    'Look at the user and the password in REDIS_URL, and what that user may do.',
  ],
  [/^READONLY$/, 'This is a replica: REDIS_URL must lead to the primary.'],
];

const TLS_CODE = /^(EPROTO$|ERR_SSL_|ERR_TLS_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/;

/** What to do about an error with this code. */
export function adviceFor(code: string): string {
  return ADVICE.find(([pattern]) => pattern.test(code))?.[1] ?? 'Look at the host, the port and the network.';
}

/** Whether the code is one of TLS. If so, the connection itself was made. */
export function isTlsCode(code: string): boolean {
  return TLS_CODE.test(code);
}

/** The code of an error, or its name. */
export function codeOf(error: unknown): string {
  const { code, name } = error as NodeJS.ErrnoException;
  return code ?? name ?? 'unknown';
}
