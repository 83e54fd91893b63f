import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import { sleep } from '../clock/sleep.ts';
import { freePort, listens } from './free-port.ts';
import { makeCertificate, renamed } from './nginx.ts';

/** A load balancer that runs a configuration of `deploy/`. */
export interface LoadBalancer {
  /** Where it takes https requests. */
  readonly origin: string;
  /** Where it takes http requests. */
  readonly httpPort: number;
  /** The certificate that it shows, PEM. */
  readonly certificate: string;
  /** All that it has printed. */
  log(): string;
}

const installed = ['haproxy -v', 'caddy version', 'openssl version'].every((command) => {
  const [name = '', ...args] = command.split(' ');
  return spawnSync(name, args).status === 0;
});
const HINT = 'apt-get install haproxy caddy openssl';
if (!installed && process.env.CI === 'true') throw new Error(`HAProxy, Caddy or openssl is missing: ${HINT}`);
if (!installed) process.stderr.write(`Tests with HAProxy and Caddy are skipped; to run them: ${HINT}\n`);

/** A `describe` for tests that need the `haproxy`, `caddy` and `openssl` programs. */
export const describeWithLoadBalancers = installed ? describe : describe.skip;

const started: { readonly child: ChildProcess; readonly folder: string }[] = [];

/** Which names in a file of `deploy/` are replaced for the test, and the command that runs it. */
interface Setup {
  readonly file: string;
  names(at: { folder: string; https: number; http: number; inner: number }): Readonly<Record<string, string>>;
  command(path: string): readonly [string, ...string[]];
}

const HAPROXY: Setup = {
  file: 'haproxy.cfg',
  names: ({ folder, https, http }) => ({
    'bind :443': `bind 127.0.0.1:${https}`,
    'bind :80': `bind 127.0.0.1:${http}`,
    '/etc/haproxy/': `${folder}/`,
    // A busy machine is not a relay that is gone.
    'timeout check 1s': 'timeout check 30s',
    // Such a name can be used only once on a machine.
    'abns@single': `abns@single-${https}`,
  }),
  command: (path) => ['haproxy', '-db', '-f', path],
};

const CADDY: Setup = {
  file: 'Caddyfile',
  names: ({ folder, https, http, inner }) => ({
    // These options are not needed where only one Caddy runs.
    'servers {': `admin off\ndefault_bind 127.0.0.1\nhttps_port ${https}\nhttp_port ${http}\nservers {`,
    'chat.example.com {': 'localhost {',
    '/run/secrets/': `${folder}/`,
    ':3999': `:${inner}`,
    'health_timeout 1s': 'health_timeout 30s',
  }),
  command: (path) => ['caddy', 'run', '--adapter', 'caddyfile', '--config', path],
};

/** Starts HAProxy with `deploy/haproxy.cfg`, in front of the relays at `ports` of this machine. */
export const startHaproxy = (ports: readonly [number, number]) => start(HAPROXY, ports);

/** Starts Caddy with `deploy/Caddyfile`, in front of the relays at `ports` of this machine. */
export const startCaddy = (ports: readonly [number, number]) => start(CADDY, ports);

/** Starts a program with a file of `deploy/`, in which only ports, addresses of relays, paths and the time for a check are replaced. */
async function start(
  { file, names, command }: Setup,
  ports: readonly [number, number],
): Promise<LoadBalancer> {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-front-'));
  const [https, http, inner] = [await freePort(), await freePort(), await freePort()];
  makeCertificate(folder);
  const read = (name: string) => readFileSync(join(folder, name), 'utf8');
  writeFileSync(join(folder, 'tls.pem'), read('tls_certificate') + read('tls_key'));
  const text = readFileSync(new URL(`../../../deploy/${file}`, import.meta.url), 'utf8');
  const relays = { 'relay-1:3000': `127.0.0.1:${ports[0]}`, 'relay-2:3000': `127.0.0.1:${ports[1]}` };
  writeFileSync(join(folder, file), renamed(text, { ...names({ folder, https, http, inner }), ...relays }));
  const [program, ...args] = command(join(folder, file));
  const env = { PATH: process.env.PATH, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  started.push({ child, folder });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
  }
  while (!(await listens(https))) {
    if (child.exitCode !== null) throw new Error(`${program} did not start: ${printed}`);
    await sleep(20);
  }
  return {
    origin: `https://localhost:${https}`,
    httpPort: http,
    certificate: read('tls_certificate'),
    log: () => printed,
  };
}

/** Stops all load balancers and removes their folders; for `afterEach`. */
export async function stopLoadBalancers(): Promise<void> {
  for (const { child, folder } of started.splice(0)) {
    if (child.exitCode === null) {
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
    }
    rmSync(folder, { recursive: true });
  }
}
