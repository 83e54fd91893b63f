import type { Secret } from '../secret.ts';

/** What a Redis URL says, without its user and password. */
export interface RedisAddress {
  /** Name and port. */
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
