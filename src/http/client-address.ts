import { isIP, isIPv4 } from 'node:net';
import type { Request } from 'express';
import { ipKeyGenerator } from 'express-rate-limit';

/** Providers usually give one customer a whole IPv6 /56. */
const IPV6_PREFIX = 56;

/**
 * The address by which a request is counted: `req.ip`, which Express takes from `X-Forwarded-For` only as far as
 * TRUST_PROXY allows. An IPv6 address is shortened to its /56, and an IPv4 address in IPv6 form becomes IPv4. A port,
 * which some load balancers append, is left out. If `req.ip` is not an address, that of the connection is used.
 */
export function clientAddress({ ip, socket }: Request): string {
  return countedAddress(ip) ?? countedAddress(socket.remoteAddress) ?? 'unknown';
}

/** The address in a text, in the form by which it is counted; undefined if it holds none. */
export function countedAddress(text: string | undefined): string | undefined {
  const address = addressIn(text);
  if (address === undefined || isIPv4(address)) return address;
  return ipKeyGenerator(address, IPV6_PREFIX);
}

/** The address in a text, without a port, brackets and an IPv6 zone (RFC 4007 §11); undefined if it holds none. */
function addressIn(text = ''): string | undefined {
  // A fast path: nearly all are.
  if (isIPv4(text)) return text;
  const bare = /^\[([^\]]*)\](?::\d+)?$/.exec(text)?.[1] ?? text.replace(/^([\d.]+):\d+$/, '$1');
  const address = bare.replace(/%.*$/, '');
  return isIP(address) > 0 ? address : undefined;
}
