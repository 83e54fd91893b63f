import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { codeOf } from './failure-advice.ts';

/** What a certificate says about itself. */
export interface Certificate {
  readonly subject: string;
  readonly issuer: string;
  readonly validTo: Date;
}

/** How an attempt to connect ended. After a failure it holds what was known until then. */
export interface CheckConnection {
  /** The error's code; `undefined` if the connection was good. */
  readonly failure: string | undefined;
  readonly address: string | undefined;
  /** The time until the connection was good, or failed, in ms. */
  readonly ms: number;
  /** The version of TLS, if the connection was good. */
  readonly tls: string | undefined;
  readonly certificate: Certificate | undefined;
}

/** How long a connection may take, in ms. */
const TIMEOUT_MS = 5_000;

/** Connects to the host of an http or https URL as a request of Node.js does, verifies its certificate, and closes. */
export function connectTo(url: Readonly<URL>): Promise<CheckConnection> {
  const startedAt = performance.now();
  const host = hostOf(url);
  const isTls = url.protocol === 'https:';
  const port = Number(url.port) || (isTls ? 443 : 80);
  const socket: Socket | TLSSocket = isTls
    ? connectTls({ host, port, ...(isIP(host) === 0 && { servername: host }) })
    : connectTcp({ host, port });
  let address: string | undefined;
  let certificate: Certificate | undefined;
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
    socket.once('error', (error) => end(failureOf(error)));
    socket.setTimeout(TIMEOUT_MS, () => end('ETIMEDOUT'));
  });
}

/** A URL's host as a name or an address, without the brackets of IPv6. */
export function hostOf({ hostname }: Readonly<URL>): string {
  return hostname.replace(/^\[|\]$/g, '');
}

/** The error's code. If every address of a name has failed, the code of the first one. */
function failureOf(error: Error): string {
  return error instanceof AggregateError ? codeOf(error.errors[0]) : codeOf(error);
}

function certificateOf(socket: TLSSocket): Certificate | undefined {
  const { subject, issuer, valid_to: validTo } = socket.getPeerCertificate() as Partial<PeerCertificate>;
  if (!subject || !issuer || !validTo) return undefined;
  return { subject: nameOf(subject), issuer: nameOf(issuer), validTo: new Date(validTo) };
}

/** A distinguished name's common name, or else its organization. */
function nameOf({ CN, O }: Partial<PeerCertificate['subject']>): string {
  return [CN ?? O ?? 'nobody'].flat().join(', ');
}
