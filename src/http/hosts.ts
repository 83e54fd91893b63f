import { isIP } from 'node:net';

/** A host and maybe a port (RFC 9110 §7.2); no characters that two parsers of URLs could read in different ways. */
const HOST = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d{0,5})?$/i;

/**
 * The host of a `Host` header as browsers write it (WHATWG URL, host parsing): in lower case, an IP address in its
 * normal form, IPv6 in brackets; without the port and without the dot at the end of an absolute name. Undefined if the
 * header holds no host.
 */
export function hostNameOf(header: string): string | undefined {
  const host = HOST.exec(header)?.[1];
  return (host && URL.parse(`http://${host}`)?.hostname.replace(/\.$/, '')) || undefined;
}

/** Whether browsers resolve this name to their own machine without a name server (RFC 6761 §6.3). */
export function isLoopbackName(hostname: string): boolean {
  return isLoopback(hostname) || hostname.endsWith('.localhost');
}

/** Like `hostNameOf`, for a name or address in the configuration, where IPv6 may stand without brackets. */
export function hostNamed(text: string): string | undefined {
  return hostNameOf(isIP(text) === 6 ? `[${text}]` : text);
}

/** Whether `text` is an IP address or a host name, so that a server can listen there. */
export function isHost(text: string): boolean {
  return isIP(text) > 0 || /^(?=.{1,253}$)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*$/.test(text);
}

/** Whether `text` is an IP address or a CIDR block. */
export function isAddress(text: string): boolean {
  const [address = '', prefix, ...rest] = text.split('/');
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  if (bits === 0 || rest.length > 0) return false;
  // A prefix of 0 would trust everyone.
  return prefix === undefined || (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= bits);
}

/**
 * `localhost` and the loopback addresses (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3), in the form of a URL's `hostname`, or of
 * a socket.
 */
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\]|::1)$/;

/** Whether this host is the machine itself. */
export function isLoopback(hostname: string): boolean {
  return LOOPBACK.test(hostname);
}
