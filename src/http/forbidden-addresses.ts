import { BlockList, isIP } from 'node:net';

/** Those of metadata services of clouds that are not link-local, and that of no host at all. */
const METADATA = ['100.100.100.200', '168.63.129.16', '192.0.0.192', '0.0.0.0'];
/** IPv4-mapped addresses, and those of a NAT64. */
const IPV4_WITHIN = ['::ffff:', '64:ff9b::'];

const forbidden = new BlockList();
forbidden.addSubnet('169.254.0.0', 16);
for (const address of METADATA) forbidden.addAddress(address);
for (const prefix of IPV4_WITHIN) {
  forbidden.addSubnet(`${prefix}169.254.0.0`, 112, 'ipv6');
  for (const address of METADATA) forbidden.addAddress(prefix + address, 'ipv6');
}
forbidden.addSubnet('fe80::', 10, 'ipv6');
for (const address of ['::', 'fd00:ec2::254', 'fd20:ce::254']) forbidden.addAddress(address, 'ipv6');

/** Whether a host, as `hostname` of a URL has it, is an address that is link-local, of a metadata service, or of none. */
export function isForbidden(hostname: string): boolean {
  const address = hostname.replace(/^\[|\]$/g, '');
  const version = isIP(address);
  return version > 0 && forbidden.check(address, version === 6 ? 'ipv6' : 'ipv4');
}
