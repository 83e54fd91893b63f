import { isIP } from 'node:net';
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
  const address = [ip, socket.remoteAddress].map(plainAddress).find((text) => isIP(text) > 0);
  return address === undefined ? 'unknown' : ipKeyGenerator(address, IPV6_PREFIX);
}

/** Without a port, brackets and an IPv6 zone (RFC 4007 §11). */
function plainAddress(text = ''): string {
  const bare = /^\[([^\]]*)\](?::\d+)?$/.exec(text)?.[1] ?? text.replace(/^([\d.]+):\d+$/, '$1');
  return bare.replace(/%.*$/, '');
}
