import { execFileSync } from 'node:child_process';
import dns from 'node:dns';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import { createServer as createTcpServer, type Server as TcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { errorEventIn } from '../harness/clients/error-event.ts';
import { expectNoCanary, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { startRawUpstream } from '../harness/service/raw-upstream.ts';

let relay: TestRelay;
const closing: (() => unknown)[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  await relay.close();
  for (const close of closing.splice(0)) await close();
});

/** What the problem says if no byte of the message has left, and if one has. */
const NOT_STARTED = { retryable: 'new message' };
const MAYBE_STARTED = { retryable: false, maybeStarted: true };

/**
 * Sends a message to a bot service at `url`; expects that the answer does not show the URL; returns the log line. If the
 * message has left, the answer is a stream.
 */
async function refusalFrom(url: URL, code: string, started: typeof NOT_STARTED | typeof MAYBE_STARTED) {
  relay = await startRelay(url);
  const response = await relay.send(await relay.signIn());
  const text = await response.text();
  const status = started === MAYBE_STARTED ? 200 : 502;
  expect(response.status).toBe(status);
  const { retryable, maybeStarted, ...problem } = status === 200 ? errorEventIn(text) : JSON.parse(text);
  expect(problem).toMatchObject({ status: 502, code });
  expect({ retryable, ...(maybeStarted !== undefined && { maybeStarted }) }).toEqual(started);
  for (const secret of [url.hostname, url.host, url.port, 'http', 'ECONN', 'ENOTFOUND', 'CERT', 'HPE_']) {
    if (secret) expect(text).not.toContain(secret);
  }
  expectNoCanary(text);
  const line = await relay.logLine(({ bot }) => bot === 'acme/helper');
  expect(line).toMatchObject({ level: 'warn', status, outcome: code });
  return line;
}

/** A port of 127.0.0.1 on which no server listens. */
async function closedPort(): Promise<number> {
  const server = createTcpServer();
  const port = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Lets `server` listen on a free port until the end of the test; returns the port. */
async function listen(server: TcpServer): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as { port: number }).port;
}

/** Starts an https server with a self-signed certificate; `requests` counts its requests. */
async function selfSignedServer() {
  const folder = await mkdtemp(join(tmpdir(), 'relay-test-'));
  closing.push(() => rm(folder, { recursive: true }));
  const keyFile = join(folder, 'self.key');
  const certFile = join(folder, 'self.crt');
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const args = ['req', '-x509', '-days', '1', ...subject, ...curve, '-keyout', keyFile, '-out', certFile];
  execFileSync('openssl', args, { stdio: 'ignore' });
  const [key, cert] = await Promise.all([readFile(keyFile), readFile(certFile)]);
  let requests = 0;
  const server = createServer({ key, cert }, (_req, res) => {
    requests++;
    res.setHeader('Content-Type', 'text/event-stream').end('data: a\n\n');
  });
  return { port: await listen(server), requests: () => requests };
}

describe('a bot service counts as unreachable', () => {
  test('when it refuses the connection', async () => {
    const url = new URL(`http://127.0.0.1:${await closedPort()}`);
    expect(await refusalFrom(url, 'upstream_unreachable', NOT_STARTED)).toMatchObject({
      cause: 'ECONNREFUSED',
    });
  });

  test('when its name is not found', async () => {
    const lookup = dns.lookup;
    // The same error as from the system, without a wait for name servers.
    jest.spyOn(dns, 'lookup').mockImplementation(((name: string, ...rest: unknown[]) => {
      if (name !== 'does-not-exist.invalid') return Reflect.apply(lookup, dns, [name, ...rest]);
      const error = Object.assign(new Error(`getaddrinfo ENOTFOUND ${name}`), { code: 'ENOTFOUND' });
      process.nextTick(rest.at(-1) as (error: Error) => void, error);
    }) as typeof dns.lookup);
    const url = new URL('http://does-not-exist.invalid');
    expect(await refusalFrom(url, 'upstream_unreachable', NOT_STARTED)).toMatchObject({ cause: 'ENOTFOUND' });
  });

  test('when its certificate is not trusted, and it gets no request', async () => {
    const server = await selfSignedServer();
    const url = new URL(`https://localhost:${server.port}`);
    const { cause } = await refusalFrom(url, 'upstream_unreachable', NOT_STARTED);
    expect(cause).toMatch(/SELF_SIGNED/);
    expect(server.requests()).toBe(0);
  });

  test('when it does not speak TLS', async () => {
    const server = createTcpServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end('HTTP/1.1 400 leak\r\n\r\n'));
    });
    const port = await listen(server);
    await refusalFrom(new URL(`https://127.0.0.1:${port}`), 'upstream_unreachable', NOT_STARTED);
  });
});

describe('an answer counts as bad', () => {
  test('when it is not HTTP', async () => {
    const upstream = await startRawUpstream((socket) => socket.write('220 leak ESMTP\r\n'));
    closing.push(() => upstream.close());
    const line = await refusalFrom(new URL(upstream.url), 'upstream_bad_response', MAYBE_STARTED);
    expect(line.cause).toBe('HTTPParserError');
  });

  test('when it switches protocols', async () => {
    const upstream = await startRawUpstream((socket) =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: leak\r\n\r\n'),
    );
    closing.push(() => upstream.close());
    await refusalFrom(new URL(upstream.url), 'upstream_bad_response', MAYBE_STARTED);
    await until(() => upstream.sockets.every(({ destroyed }) => destroyed));
  });
});
