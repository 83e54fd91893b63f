import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { sleep } from '../clock/sleep.ts';
import type { Identity } from '../faults/fake-load-balancer.ts';
import { listens } from './free-port.ts';
import { freshFolder } from './process.ts';

const PATIENCE_MS = 10_000;

interface Setting {
  readonly port: number;
  /** The ports of the relays. */
  readonly relays: readonly number[];
  /** The folder with `cert`, `key` and `both` (one after the other), which the program may write to. */
  readonly folder: string;
  /** Lines that the test adds where requests are forwarded to the relays. */
  readonly lines: string;
}

interface Program {
  /** Prints its version. */
  readonly version: readonly string[];
  readonly run: (file: string, folder: string) => readonly string[];
  readonly configuration: (setting: Setting) => string;
}

const listed = (relays: readonly number[], one: (port: number, at: number) => string, between: string) =>
  relays.map(one).join(between);

/** Each program terminates TLS and shares the requests among the relays. The lines of a test add to this. */
const PROGRAMS = {
  nginx: {
    version: ['nginx', '-v'],
    run: (file, folder) => ['nginx', '-p', folder, '-c', file],
    configuration: ({ port, relays, folder, lines }) => `
      daemon off; ${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 1;
      pid ${folder}/pid; error_log ${folder}/error.log;
      events {}
      http {
        access_log off;
        client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy; fastcgi_temp_path ${folder}/fastcgi;
        uwsgi_temp_path ${folder}/uwsgi; scgi_temp_path ${folder}/scgi;
        upstream relays { ${listed(relays, (relay) => `server 127.0.0.1:${relay};`, ' ')} }
        server {
          listen 127.0.0.1:${port} ssl; ssl_certificate ${folder}/cert; ssl_certificate_key ${folder}/key;
          location / {
            proxy_pass http://relays; proxy_http_version 1.1; proxy_buffering off; proxy_set_header Host $http_host;
            ${lines}
          }
        }
      }`,
  },
  haproxy: {
    version: ['haproxy', '-v'],
    run: (file) => ['haproxy', '-db', '-f', file],
    configuration: ({ port, relays, folder, lines }) => `
defaults
  mode http
  timeout connect 2s
  timeout client 200s
  timeout server 200s
frontend public
  bind 127.0.0.1:${port} ssl crt ${folder}/both
  default_backend relays
backend relays
  balance roundrobin
  ${lines}
${listed(relays, (relay, at) => `  server relay-${at} 127.0.0.1:${relay}`, '\n')}
`,
  },
  caddy: {
    version: ['caddy', 'version'],
    run: (file) => ['caddy', 'run', '--adapter', 'caddyfile', '--config', file],
    configuration: ({ port, relays, folder, lines }) => `
{
  admin off
  auto_https off
  storage file_system ${folder}
  servers {
    protocols h1 h2
  }
}
https://127.0.0.1:${port} {
  bind 127.0.0.1
  tls ${folder}/cert ${folder}/key
  reverse_proxy ${listed(relays, (relay) => `127.0.0.1:${relay}`, ' ')} {
    lb_policy round_robin
    ${lines}
  }
}
`,
  },
} satisfies Record<string, Program>;

export type LoadBalancer = keyof typeof PROGRAMS;

const NAMES = Object.keys(PROGRAMS) as LoadBalancer[];
const missing = NAMES.filter((name) => {
  const [command, ...args] = PROGRAMS[name].version;
  return spawnSync(command as string, args).status !== 0;
});
const hint = `apt-get install ${missing.join(' ')}`;
if (missing.length > 0 && process.env.CI === 'true') throw new Error(`missing: ${hint}`);
if (missing.length > 0) process.stderr.write(`Tests with ${missing.join(', ')} are skipped: ${hint}\n`);

/** Whether the program can be started here. */
export const isInstalled = (name: LoadBalancer) => !missing.includes(name);

const started: ChildProcess[] = [];

export interface LoadBalancerOptions {
  readonly identity: Identity;
  readonly port: number;
  readonly relays: readonly number[];
  readonly lines?: string;
}

/** Starts the program on `port` for https requests; resolves when it listens. */
export async function startLoadBalancer(
  name: LoadBalancer,
  { identity, port, relays, lines = '' }: LoadBalancerOptions,
): Promise<void> {
  const { cert, key } = identity;
  const folder = freshFolder({ cert, key, both: cert + key });
  const { configuration, run } = PROGRAMS[name];
  const file = join(
    freshFolder({ configuration: configuration({ port, relays, folder, lines }) }),
    'configuration',
  );
  const [command, ...args] = run(file, folder);
  const child = spawn(command as string, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, HOME: folder },
  });
  started.push(child);
  let printed = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  const deadline = performance.now() + PATIENCE_MS;
  while (!(await listens(port))) {
    if (child.exitCode !== null || performance.now() > deadline)
      throw new Error(`${name} did not start: ${printed}`);
    await sleep(20);
  }
}

/** Stops all load balancers; for `afterEach`, before `stopProcesses`. */
export async function stopLoadBalancers(): Promise<void> {
  for (const child of started.splice(0)) {
    if (child.exitCode !== null) continue;
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    await gone;
  }
}
