import { freePort } from '../relay/free-port.ts';
import type { Authority, Issued } from '../service/authority.ts';
import { type RedisServer, startRedis } from './redis.ts';

/** A Redis server that also listens with TLS. */
export interface TlsRedis {
  /** Over its port without TLS. */
  readonly server: RedisServer;
  readonly port: number;
  /** `rediss://127.0.0.1:PORT`, with `user:password@` if given. */
  url(user?: string): string;
}

/** Starts a server with this certificate. With `clients`, it asks for a certificate of that CA. */
export async function startTlsRedis(
  { certFile, keyFile }: Issued,
  { clients, options = [] }: { readonly clients?: Authority; readonly options?: readonly string[] } = {},
): Promise<TlsRedis> {
  const port = await freePort();
  const asks = clients
    ? ['--tls-auth-clients', 'yes', '--tls-ca-cert-file', clients.certFile]
    : ['--tls-auth-clients', 'no'];
  const own = ['--tls-port', String(port), '--tls-cert-file', certFile, '--tls-key-file', keyFile];
  const server = await startRedis(...own, ...asks, ...options);
  return { server, port, url: (user) => `rediss://${user ? `${user}@` : ''}127.0.0.1:${port}` };
}
