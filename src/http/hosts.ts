import { isIP } from 'node:net';
import { isLoopback } from './loopback.ts';

/** A host and maybe a port (RFC 9110 §7.2); nothing that readers of a URL could take apart in different ways. */
const HOST = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d{0,5})?$/i;

/**
 * The host of a `Host` header as browsers write it (WHATWG URL, host parsing): in small letters, an IP address in its
 * one form, IPv6 in brackets. Without its port, and without the dot that ends an absolute name. Undefined if it is none.
 */
export function hostNameOf(header: string): string | undefined {
  const host = HOST.exec(header)?.[1];
  return (host && URL.parse(`http://${host}`)?.hostname.replace(/\.$/, '')) || undefined;
}

/** Whether it is a name that leads a browser to its own machine (RFC 6761 §6.3), whatever a name server says. */
export function isLoopbackName(hostname: string): boolean {
  return isLoopback(hostname) || hostname.endsWith('.localhost');
}

/** The same of a name or address that an operator has written, who may leave out the brackets of IPv6. */
export function hostNamed(text: string): string | undefined {
  return hostNameOf(isIP(text) === 6 ? `[${text}]` : text);
}

/** Whether one can listen there: an IP address or a name. */
export function isHost(text: string): boolean {
  return isIP(text) > 0 || /^(?=.{1,253}$)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*$/.test(text);
}

/** Whether it is an IP address, or a CIDR block of some. */
export function isAddress(text: string): boolean {
  const [address = '', prefix, ...rest] = text.split('/');
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0;
  if (bits === 0 || rest.length > 0) return false;
  // A prefix of 0 would trust everyone.
  return prefix === undefined || (/^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= bits);
}
