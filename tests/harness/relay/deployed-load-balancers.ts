import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, listens } from './free-port.ts';
import { describeWith, programFolder, startProgram } from './programs.ts';

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
  errorLog(): string;
}

export const describeWithNginx = describeWith(['nginx -v', 'openssl version'], 'nginx openssl');
export const describeWithLoadBalancers = describeWith(
  ['haproxy -v', 'caddy version', 'openssl version'],
  'haproxy caddy openssl',
);

type Names = Readonly<Record<string, string>>;

/** Which names in a file of `deploy/` are replaced for the test, and the command that runs it. */
interface Setup {
  readonly file: string;
  names(at: { folder: string; https: number; http: number; inner: number }): Names;
  command(path: string, folder: string): readonly string[];
}

const NGINX: Setup = {
  file: 'nginx.conf',
  names: ({ folder, https, http }) => ({
    'listen 8443 ssl': `listen 127.0.0.1:${https} ssl`,
    'listen 8080;': `listen 127.0.0.1:${http};`,
    '/run/secrets/': `${folder}/`,
    '/tmp/': `${folder}/`,
    '/dev/stderr': `${folder}/error.log`,
    '/dev/stdout': `${folder}/access.log`,
    // A busy machine is not a relay that is gone.
    'proxy_read_timeout 1s': 'proxy_read_timeout 30s',
  }),
  // If root starts nginx, its workers run as another user, who cannot enter this folder.
  command: (path, folder) => [
    ...['nginx', '-p', folder, '-c', path],
    ...['-g', `daemon off;${process.getuid?.() === 0 ? ' user root;' : ''}`],
  ],
};

const HAPROXY: Setup = {
  file: 'haproxy.cfg',
  names: ({ folder, https, http }) => ({
    'bind :443': `bind 127.0.0.1:${https}`,
    'bind :80': `bind 127.0.0.1:${http}`,
    '/etc/haproxy/': `${folder}/`,
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

const startWith = (setup: Setup) => (ports: readonly [number, number], others?: Names) =>
  start(setup, ports, others);
/** Start a program with its file of `deploy/`, in front of the relays at `ports` of this machine. `stopPrograms` ends it. */
export const startNginx = startWith(NGINX);
export const startHaproxy = startWith(HAPROXY);
export const startCaddy = startWith(CADDY);

/** In the file, only ports, addresses of relays, paths and the time for a check are replaced, and `others`. */
async function start(
  { file, names, command }: Setup,
  ports: readonly [number, number],
  others: Names = {},
): Promise<LoadBalancer> {
  const folder = programFolder();
  const [https, http, inner] = [await freePort(), await freePort(), await freePort()];
  makeCertificate(folder);
  const read = (name: string) =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name), 'utf8') : '';
  writeFileSync(join(folder, 'tls.pem'), read('tls_certificate') + read('tls_key'));
  const text = readFileSync(new URL(`../../../deploy/${file}`, import.meta.url), 'utf8');
  const relays = { 'relay-1:3000': `127.0.0.1:${ports[0]}`, 'relay-2:3000': `127.0.0.1:${ports[1]}` };
  const all = { ...names({ folder, https, http, inner }), ...relays, ...others };
  writeFileSync(join(folder, file), renamed(text, all));
  const printed = await startProgram(command(join(folder, file), folder), folder, () => listens(https));
  return {
    origin: `https://localhost:${https}`,
    httpPort: http,
    certificate: read('tls_certificate'),
    log: () => printed() + read('access.log'),
    errorLog: () => printed() + read('error.log'),
  };
}

/** Replaces each of the names everywhere in `text`, in one pass. */
function renamed(text: string, names: Names): string {
  const missing = Object.keys(names).filter((name) => !text.includes(name));
  if (missing.length > 0) throw new Error(`the configuration does not name ${missing.join(', ')}`);
  const any = new RegExp(Object.keys(names).join('|'), 'g');
  return text.replace(any, (name) => names[name] as string);
}

/** Makes `tls_certificate`, for `localhost` and its own authority, and `tls_key` in the folder. */
function makeCertificate(folder: string): void {
  const words =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost';
  const files = ['-keyout', join(folder, 'tls_key'), '-out', join(folder, 'tls_certificate')];
  const names = ['-addext', 'subjectAltName=DNS:localhost'];
  execFileSync('openssl', [...words.split(' '), ...names, ...files], { stdio: 'ignore' });
}
