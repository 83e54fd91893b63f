import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import { call } from '../clients/call.ts';
import { sleep } from '../clock/sleep.ts';
import { freePort } from './free-port.ts';

const HINT = 'apt-get install haproxy caddy';
const installed = [
  ['haproxy', '-v'],
  ['caddy', 'version'],
].every(([name = '', ...args]) => spawnSync(name, args).status === 0);
if (!installed && process.env.CI === 'true') throw new Error(`HAProxy or Caddy is missing: ${HINT}`);
if (!installed) process.stderr.write(`Tests with HAProxy and Caddy are skipped; to run them: ${HINT}\n`);

/** A `describe` for tests that need the `haproxy` and `caddy` programs. */
export const describeWithBalancers = installed ? describe : describe.skip;

type Ports = readonly [number, number];

const haproxy = (port: number, [first, second]: Ports) => `
defaults
  mode http
  timeout connect 2s
  timeout client 200s
  timeout server 200s
  retries 3
  option redispatch 1
frontend http
  bind 127.0.0.1:${port}
  default_backend relays
backend relays
  balance roundrobin
  option httpchk GET /readyz
  default-server check inter 1s fall 2
  server relay-1 127.0.0.1:${first}
  server relay-2 127.0.0.1:${second}
`;

const caddy = (port: number, [first, second]: Ports) => `
{
  admin off
  auto_https off
}
http://:${port} {
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:${first} 127.0.0.1:${second} {
    lb_policy round_robin
    lb_try_duration 5s
    health_uri /readyz
    health_interval 1s
  }
}
`;

const started: { readonly child: ChildProcess; readonly folder: string }[] = [];

/** Starts HAProxy or Caddy with a common configuration in front of the relays at `ports`; returns its own port, http. */
export async function startBalancer(name: 'haproxy' | 'caddy', ports: Ports): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), `bot-relay-${name}-`));
  const file = join(folder, 'configuration');
  const port = await freePort();
  writeFileSync(file, { haproxy, caddy }[name](port, ports));
  const args = { haproxy: ['-f', file], caddy: ['run', '--adapter', 'caddyfile', '--config', file] }[name];
  const child = spawn(name, args, { env: { HOME: folder, PATH: process.env.PATH }, stdio: 'ignore' });
  started.push({ child, folder });
  // Waits until the load balancer knows that a relay is ready.
  for (let tries = 0; tries < 200; tries++) {
    const answer = await call(port, '/readyz').catch(() => undefined);
    if (answer?.status === 200) return port;
    await sleep(50);
  }
  throw new Error(`${name} did not start`);
}

/** Stops all load balancers and removes their folders; for `afterEach`. */
export async function stopBalancers(): Promise<void> {
  for (const { child, folder } of started.splice(0)) {
    const gone = child.exitCode === null ? once(child, 'exit') : undefined;
    child.kill('SIGKILL');
    await gone;
    rmSync(folder, { recursive: true });
  }
}
