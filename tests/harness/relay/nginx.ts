import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import { sleep } from '../clock/sleep.ts';
import { freePort } from './free-port.ts';

const CONFIGURATION = new URL('../../../deploy/nginx.conf', import.meta.url);
const HINT = 'apt-get install nginx openssl';

const installed = ['nginx -v', 'openssl version'].every((command) => {
  const [name = '', ...args] = command.split(' ');
  return spawnSync(name, args).status === 0;
});
if (!installed && process.env.CI === 'true') throw new Error(`nginx or openssl is missing: ${HINT}`);
if (!installed) process.stderr.write(`Tests with nginx are skipped; to run them: ${HINT}\n`);

/** A `describe` for tests that need the `nginx` and `openssl` programs. */
export const describeWithNginx = installed ? describe : describe.skip;

export interface Nginx {
  /** Where it takes https requests. */
  readonly origin: string;
  /** Where it sends http requests to https. */
  readonly httpPort: number;
  /** The certificate that it shows, PEM. */
  readonly certificate: string;
  /** Its access log, parsed. */
  accessLog(): Record<string, string>[];
  errorLog(): string;
}

const started: { readonly child: ChildProcess; readonly folder: string }[] = [];

/**
 * Starts nginx with `deploy/nginx.conf`, in front of the relays at `ports` of this machine. Only ports, the relays'
 * addresses, paths and the time for `/readyz` are replaced in the file, and `names`.
 */
export async function startNginx(
  ports: readonly [number, number],
  names: Readonly<Record<string, string>> = {},
): Promise<Nginx> {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-nginx-'));
  const [httpsPort, httpPort] = [await freePort(), await freePort()];
  makeCertificate(folder);
  const text = renamed(readFileSync(CONFIGURATION, 'utf8'), {
    'listen 8443 ssl': `listen 127.0.0.1:${httpsPort} ssl`,
    'listen 8080;': `listen 127.0.0.1:${httpPort};`,
    'relay-1:3000': `127.0.0.1:${ports[0]}`,
    'relay-2:3000': `127.0.0.1:${ports[1]}`,
    '/run/secrets/': `${folder}/`,
    '/tmp/': `${folder}/`,
    '/dev/stderr': `${folder}/error.log`,
    '/dev/stdout': `${folder}/access.log`,
    // A busy machine is not a relay that is gone.
    'proxy_read_timeout 1s': 'proxy_read_timeout 30s',
    ...names,
  });
  writeFileSync(join(folder, 'nginx.conf'), text);
  // If root starts nginx, its workers run as another user, who cannot enter this folder.
  const globals = `daemon off;${process.getuid?.() === 0 ? ' user root;' : ''}`;
  const child = spawn('nginx', ['-p', folder, '-c', join(folder, 'nginx.conf'), '-g', globals], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  started.push({ child, folder });
  let printed = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  const read = (name: string) =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name), 'utf8') : '';
  while (read('nginx.pid') === '') {
    if (child.exitCode !== null) throw new Error(`nginx did not start: ${printed}${read('error.log')}`);
    await sleep(10);
  }
  return {
    origin: `https://localhost:${httpsPort}`,
    httpPort,
    certificate: read('tls_certificate'),
    accessLog: () =>
      read('access.log')
        .split('\n')
        .filter((line) => line.endsWith('}'))
        .map((line) => JSON.parse(line) as Record<string, string>),
    errorLog: () => printed + read('error.log'),
  };
}

/** Stops every nginx and removes its folder; for `afterEach`. */
export async function stopNginx(): Promise<void> {
  for (const { child, folder } of started.splice(0)) {
    if (child.exitCode === null) {
      const gone = once(child, 'exit');
      child.kill('SIGTERM');
      await gone;
    }
    rmSync(folder, { recursive: true });
  }
}

/** Replaces each of the names everywhere in `text`, in one pass. */
export function renamed(text: string, names: Readonly<Record<string, string>>): string {
  const missing = Object.keys(names).filter((name) => !text.includes(name));
  if (missing.length > 0) throw new Error(`the configuration does not name ${missing.join(', ')}`);
  const any = new RegExp(Object.keys(names).join('|'), 'g');
  return text.replace(any, (name) => names[name] as string);
}

/** Makes `tls_certificate`, for `localhost` and its own authority, and `tls_key` in the folder. */
export function makeCertificate(folder: string): void {
  const words =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost';
  const files = ['-keyout', join(folder, 'tls_key'), '-out', join(folder, 'tls_certificate')];
  const names = ['-addext', 'subjectAltName=DNS:localhost'];
  execFileSync('openssl', [...words.split(' '), ...names, ...files], { stdio: 'ignore' });
}
