import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Identity } from '../faults/fake-load-balancer.ts';
import { listens } from './free-port.ts';
import { describeWith, programFolder, startProgram } from './programs.ts';

interface Setting {
  readonly port: number;
  /** The ports of the relays. */
  readonly relays: readonly number[];
  /** The folder with `cert`, `key` and `both` (one after the other), which the program may write to. */
  readonly folder: string;
  /** Lines that the test adds where requests are forwarded to the relays. */
  readonly lines: string;
  /** Whether it takes https requests; if not, http. nginx always does. */
  readonly tls: boolean;
}

interface Program {
  readonly describeWith: ReturnType<typeof describeWith>;
  readonly run: (file: string, folder: string) => readonly string[];
  readonly configuration: (setting: Setting) => string;
}

const listed = (relays: readonly number[], one: (port: number, at: number) => string, between: string) =>
  relays.map(one).join(between);

/** Each program terminates TLS and shares the requests among the relays. The lines of a test add to this. */
const PROGRAMS = {
  nginx: {
    describeWith: describeWith(['nginx -v'], 'nginx'),
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
    describeWith: describeWith(['haproxy -v'], 'haproxy'),
    run: (file) => ['haproxy', '-db', '-f', file],
    configuration: ({ port, relays, folder, lines, tls }) => `
defaults
  mode http
  timeout connect 2s
  timeout client 200s
  timeout server 200s
frontend public
  bind 127.0.0.1:${port}${tls ? ` ssl crt ${folder}/both` : ''}
  default_backend relays
backend relays
  balance roundrobin
  ${lines}
${listed(relays, (relay, at) => `  server relay-${at} 127.0.0.1:${relay}`, '\n')}
`,
  },
  caddy: {
    describeWith: describeWith(['caddy version'], 'caddy'),
    run: (file) => ['caddy', 'run', '--adapter', 'caddyfile', '--config', file],
    configuration: ({ port, relays, folder, lines, tls }) => `
{
  admin off
  auto_https off
  storage file_system ${folder}
  servers {
    protocols h1 h2
  }
}
${tls ? 'https' : 'http'}://127.0.0.1:${port} {
  bind 127.0.0.1
  ${tls ? `tls ${folder}/cert ${folder}/key` : ''}
  reverse_proxy ${listed(relays, (relay) => `127.0.0.1:${relay}`, ' ')} {
    lb_policy round_robin
    ${lines}
  }
}
`,
  },
} satisfies Record<string, Program>;

export type LoadBalancer = keyof typeof PROGRAMS;

/** A `describe` for tests that need the program. */
export const describeThrough = (name: LoadBalancer) => PROGRAMS[name].describeWith;

export interface LoadBalancerOptions {
  /** For https. */
  readonly identity?: Identity;
  readonly port: number;
  readonly relays: readonly number[];
  readonly lines?: string;
}

/** Starts the program on `port`; resolves when it listens. `stopPrograms` ends it. */
export async function startLoadBalancer(
  name: LoadBalancer,
  { identity, port, relays, lines = '' }: LoadBalancerOptions,
): Promise<void> {
  const folder = programFolder();
  const { configuration, run } = PROGRAMS[name];
  const { cert = '', key = '' } = identity ?? {};
  const text = configuration({ port, relays, folder, lines, tls: identity !== undefined });
  for (const [file, content] of Object.entries({ cert, key, both: cert + key, configuration: text }))
    writeFileSync(join(folder, file), content);
  await startProgram(run(join(folder, 'configuration'), folder), folder, () => listens(port));
}
