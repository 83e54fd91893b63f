import { isIP } from 'node:net';
import type { Request } from 'express';
import { ipKeyGenerator } from 'express-rate-limit';

/** One customer line usually has a whole IPv6 /56. */
const IPV6_PREFIX = 56;

/**
 * The address that a request counts for: `req.ip`, which Express takes from `X-Forwarded-For` only as far as
 * TRUST_PROXY goes; an IPv6 address as its /56, an IPv4 address in IPv6 form as IPv4. Some load balancers write the
 * client's port behind its address: it is left out. What is no address counts for the connection's own.
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
