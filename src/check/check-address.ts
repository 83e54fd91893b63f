import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { adviceFor, codeOf } from './advice.ts';
import { type CheckReport, count } from './report.ts';

/** How long a connection may take, in ms. */
const TIMEOUT_MS = 5_000;
/** A certificate that expires sooner than this gets a note, in days: automatic renewal should have replaced it. */
const SOON_DAYS = 14;
const DAY_MS = 24 * 60 * 60 * 1000;
const TLS_CODE = /^(EPROTO$|ERR_SSL_|ERR_TLS_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/;

/** How an attempt to connect ended. After a failure it holds what was known until then. */
interface Connection {
  /** The error's code; `undefined` if the connection was good. */
  readonly failure: string | undefined;
  readonly address: string | undefined;
  /** The time until the connection was good, or failed, in ms. */
  readonly ms: number;
  /** The version of TLS, and what the certificate says about itself. */
  readonly tls: string | undefined;
  readonly certificate: ReturnType<typeof certificateOf>;
}

/** Connects to the host of an http or https URL and verifies its certificate. Returns whether this succeeded. */
export async function checkAddress(url: Readonly<URL>, report: CheckReport): Promise<boolean> {
  const { failure, address, ms, tls, certificate } = await connectTo(url);
  const isTlsFailure = TLS_CODE.test(failure ?? '');
  const isTls = url.protocol === 'https:' && (failure === undefined || isTlsFailure);
  const { add, problem } = report.about(isTls ? 'TLS' : 'connection', url.host);
  const { daysLeft } = certificate ?? {};
  const says = certificate && `certificate of ${report.quote(certificate.names)}, ${certificate.validity}`;
  if (failure !== undefined) {
    const how = isTlsFailure ? `the certificate is not trusted at ${address}` : 'no connection';
    problem(`${how} (${failure})${says ? `; ${says}` : ''}`, adviceFor(failure));
    return false;
  }
  const isSoon = daysLeft !== undefined && daysLeft < SOON_DAYS;
  add({
    state: isSoon ? 'note' : 'ok',
    says: `connected to ${address} in ${Math.round(ms)} ms, ${says ? `${tls}; ${says}` : 'not encrypted'}`,
    advice: isSoon ? 'The certificate runs out soon: see that it is renewed.' : undefined,
    measured: { connectMs: ms, ...(daysLeft !== undefined && { certificateDaysLeft: daysLeft }) },
  });
  return true;
}

/** Connects as a request of Node.js does, and closes. */
function connectTo(url: Readonly<URL>): Promise<Connection> {
  const startedAt = performance.now();
  // Without the brackets of IPv6.
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const isTls = url.protocol === 'https:';
  const port = Number(url.port) || (isTls ? 443 : 80);
  const socket: Socket | TLSSocket = isTls
    ? connectTls({ host, port, ...(isIP(host) === 0 && { servername: host }) })
    : connectTcp({ host, port });
  let address: string | undefined;
  let certificate: Connection['certificate'];
  socket.once('connect', () => {
    address = socket.remoteAddress;
  });
  // Read before Node.js verifies it: after a bad certificate the connection is closed and nothing can be read.
  socket.prependOnceListener('secure', () => {
    certificate = certificateOf(socket as TLSSocket);
  });
  return new Promise((resolve) => {
    const end = (failure?: string) => {
      const tls = isTls && failure === undefined ? ((socket as TLSSocket).getProtocol() ?? 'TLS') : undefined;
      resolve({ failure, address, ms: performance.now() - startedAt, tls, certificate });
      socket.destroy();
    };
    socket.once(isTls ? 'secureConnect' : 'connect', () => end());
    // If every address of a name has failed, the first one says why.
    socket.once('error', (error) => end(codeOf(error instanceof AggregateError ? error.errors[0] : error)));
    socket.setTimeout(TIMEOUT_MS, () => end('ETIMEDOUT'));
  });
}

function certificateOf(socket: TLSSocket) {
  const { subject, issuer, valid_to: validTo } = socket.getPeerCertificate() as Partial<PeerCertificate>;
  if (!subject || !issuer || !validTo) return undefined;
  const date = new Date(validTo);
  const daysLeft = (date.getTime() - Date.now()) / DAY_MS;
  const day = date.toISOString().slice(0, 10);
  return {
    names: `${nameOf(subject)} by ${nameOf(issuer)}`,
    daysLeft,
    validity:
      daysLeft < 0 ? `ran out on ${day}` : `valid until ${day} (${count(Math.floor(daysLeft), 'day')})`,
  };
}

/** A distinguished name's common name, or else its organization. */
function nameOf({ CN, O }: Partial<PeerCertificate['subject']>): string {
  return [CN ?? O ?? 'nobody'].flat().join(', ');
}
