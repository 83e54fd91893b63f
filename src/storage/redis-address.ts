import type { Secret } from '../secret.ts';

/** Where a Redis URL leads, and how: never its user and password. */
export interface RedisAddress {
  /** With the port. */
  readonly host: string;
  readonly hostname: string;
  readonly tls: boolean;
  readonly hasPassword: boolean;
}

/** Reads a Redis URL. */
export function redisAddress(url: Secret): RedisAddress {
  const { host, hostname, protocol, password } = new URL(url.open());
  return { host, hostname, tls: protocol === 'rediss:', hasPassword: password !== '' };
}
