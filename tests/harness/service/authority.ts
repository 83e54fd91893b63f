import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A key and its certificate, in PEM form and as files that a server can read. */
export interface Issued {
  readonly key: string;
  readonly cert: string;
  readonly keyFile: string;
  readonly certFile: string;
}

/** A CA of its own, made with OpenSSL. */
export interface Authority {
  /** Its certificate. */
  readonly cert: string;
  readonly certFile: string;
  /** Issues a certificate for these names, such as `DNS:redis.test` or `IP:127.0.0.1`. */
  issue(names: string): Issued;
}

const folders: string[] = [];
const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'ignore' });

/** Makes a CA. `removeAuthorities` removes its files. */
export function makeAuthority(): Authority {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-authority-'));
  folders.push(folder);
  const file = (name: string) => join(folder, name);
  const [keyFile, certFile] = [file('ca.key'), file('ca.crt')];
  // OpenSSL finds an issuer by its subject, so each has another one.
  const subject = `/CN=Authority ${folders.length} of ${process.pid}`;
  const isCa = ['-addext', 'keyUsage=critical,keyCertSign'];
  openssl(
    ...['req', '-x509', '-days', '2', '-subj', subject, ...isCa, ...CURVE],
    ...['-keyout', keyFile, '-out', certFile],
  );
  let issued = 0;
  return {
    cert: readFileSync(certFile, 'utf8'),
    certFile,
    issue(names) {
      issued += 1;
      const own = { keyFile: file(`${issued}.key`), certFile: file(`${issued}.crt`) };
      const request = file(`${issued}.csr`);
      const about = ['-subj', `/CN=issued ${issued}`, '-addext', `subjectAltName=${names}`];
      openssl('req', '-new', ...about, ...CURVE, '-keyout', own.keyFile, '-out', request);
      const signing = ['-CA', certFile, '-CAkey', keyFile, '-CAcreateserial', '-copy_extensions', 'copy'];
      openssl('x509', '-req', '-days', '2', '-in', request, ...signing, '-out', own.certFile);
      const [key, cert] = [own.keyFile, own.certFile].map((path) => readFileSync(path, 'utf8'));
      return { ...own, key: key as string, cert: cert as string };
    },
  };
}

/** Removes the files of all authorities; for `afterAll`. */
export function removeAuthorities(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
}
