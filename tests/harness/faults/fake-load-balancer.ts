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

/** Makes a key and a self-signed certificate for 127.0.0.1, valid for `days`; with fewer than 1 it has expired. */
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

export interface FakeLoadBalancerOptions {
  /** The certificate for TLS; plain HTTP if not given. */
  readonly identity?: Identity;
  /** Buffers each answer until it is complete. */
  readonly buffers?: boolean;
  /** Changes the headers of an answer. */
  readonly tamper?: (headers: Record<string, string | string[]>, req: IncomingMessage) => void;
  /** Answers instead of the relay; returns whether it did. */
  readonly answer?: (req: IncomingMessage, res: ServerResponse) => boolean;
}

export interface FakeLoadBalancer {
  readonly url: string;
  /** Forwards requests to this port from now on. */
  forwardTo(port: number): void;
  close(): Promise<void>;
}

/** Starts a load balancer on a free port that can misbehave. */
export async function startFakeLoadBalancer({
  identity,
  buffers,
  tamper,
  answer,
}: FakeLoadBalancerOptions = {}): Promise<FakeLoadBalancer> {
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
          // If the relay cuts the answer, this side cuts it, too.
          response.once('close', () => response.complete || res.socket?.destroySoon());
          return;
        }
        // The client may leave before the answer is whole.
        const body = await buffer(response).catch(() => undefined);
        if (body) res.writeHead(response.statusCode as number, head).end(body);
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
    forwardTo(port) {
      target = port;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
