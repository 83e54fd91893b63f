import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';

/** A way to the npm registry, and to no other host. */
export interface RegistryProxy {
  /** The variables that have npm, curl and Node.js use it for all hosts but this one. */
  readonly environment: Readonly<Record<string, string>>;
  /** The hosts that programs have asked for, each with its port. */
  readonly asked: Set<string>;
  /** The registry's host, with its port. */
  readonly registry: string;
  close(): Promise<void>;
}

/** Starts a proxy that refuses all hosts but that of the npm registry. */
export async function startRegistryProxy(): Promise<RegistryProxy> {
  const { hostname, port, protocol } = new URL(
    execFileSync('npm', ['config', 'get', 'registry'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim(),
  );
  const registryPort = port || (protocol === 'http:' ? '80' : '443');
  const registry = `${hostname}:${registryPort}`;
  const asked = new Set<string>();
  const sockets = new Set<Socket>();
  const server = createServer(({ url }, res) => {
    asked.add(`${url}`);
    res.writeHead(403).end();
  });
  server.on('connect', ({ url }, client: Socket, head: Buffer) => {
    asked.add(`${url}`);
    if (url !== registry) return void client.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    const upstream = connect(Number(registryPort), hostname, () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one);
      one.on('error', () => {}).once('close', () => other.destroy());
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const [local, names] = [
    'localhost,127.0.0.1,::1',
    ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'],
  ];
  return {
    environment: {
      ...Object.fromEntries(names.map((name) => [name, url])),
      ...{ no_proxy: local, NO_PROXY: local, NODE_USE_ENV_PROXY: '1' },
    },
    ...{ asked, registry },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
