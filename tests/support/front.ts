import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';

export interface Identity {
  readonly key: string;
  readonly cert: string;
}

/**
 * A key and a certificate for 127.0.0.1, signed by itself and made for this run; `days` it is good for, and with
 * fewer than 1 it has run out.
 */
export function selfSigned(days = 90, { names = 'IP:127.0.0.1', subject = 'front.test' } = {}): Identity {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-front-'));
  const [key, request, cert] = ['key', 'csr', 'crt'].map((name) => join(folder, name));
  const openssl = (...args: (string | undefined)[]) =>
    execFileSync('openssl', args as string[], { stdio: 'ignore' });
  try {
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
    const san = ['-addext', `subjectAltName=${names}`, '-addext', 'basicConstraints=CA:TRUE'];
    openssl('req', '-new', '-subj', `/CN=${subject}`, ...san, ...curve, '-keyout', key, '-out', request);
    const life = ['-days', String(days), '-copy_extensions', 'copy'];
    openssl('x509', '-req', '-in', request, '-signkey', key, ...life, '-out', cert);
    return { key: readFileSync(key as string, 'utf8'), cert: readFileSync(cert as string, 'utf8') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export interface FrontOptions {
  /** Ends TLS with it; plain HTTP if not given. */
  readonly identity?: Identity;
  /** Holds the whole answer back until it is complete. */
  readonly buffers?: boolean;
  /** Changes the head of an answer before it goes out. */
  readonly tamper?: (headers: Record<string, string | string[]>, req: IncomingMessage) => void;
  /** Answers by itself; true if it has. */
  readonly answer?: (req: IncomingMessage, res: ServerResponse) => boolean;
}

export interface Front {
  readonly url: string;
  /** Where it passes requests on to from now on. */
  leadTo(port: number): void;
  close(): Promise<void>;
}

/** A load balancer on a free port that can do what load balancers should not. */
export async function startFront({ identity, buffers, tamper, answer }: FrontOptions = {}): Promise<Front> {
  let target = 0;
  const handle = (req: IncomingMessage, res: ServerResponse) => {
    if (answer?.(req, res)) return;
    const { method, url: path, headers } = req;
    const onward = http.request(
      { host: '127.0.0.1', port: target, method, path, headers },
      async (response) => {
        const head = { ...response.headers } as Record<string, string | string[]>;
        tamper?.(head, req);
        if (!buffers) {
          res.writeHead(response.statusCode as number, head).flushHeaders();
          response.pipe(res);
          // An answer that is cut is cut here, too.
          response.once('close', () => response.complete || res.socket?.destroySoon());
          return;
        }
        const body = await buffer(response);
        res.writeHead(response.statusCode as number, head).end(body);
      },
    );
    onward.on('error', () => res.destroy());
    res.on('close', () => onward.destroy());
    req.pipe(onward);
  };
  const server = identity ? https.createServer({ ...identity }, handle) : http.createServer(handle);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `${identity ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    leadTo(port) {
      target = port;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
