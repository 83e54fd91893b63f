import dns from 'node:dns';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { createSecureServer } from 'node:http2';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import tls, { type TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { expectProblem } from '../harness/clients/call.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { type Identity, selfSigned } from '../harness/faults/fake-load-balancer.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';

let identity: Identity;
let trustedBefore: readonly string[];
beforeAll(() => {
  identity = selfSigned();
  trustedBefore = tls.getCACertificates('default');
  // Set it before the first connection; it is valid for this file only.
  tls.setDefaultCACertificates([identity.cert]);
});
afterAll(() => tls.setDefaultCACertificates(trustedBefore));

let service: TlsService;
let relay: TestRelay;
let cookie: string;
beforeEach(async () => {
  service = await startTlsService();
  relay = await startRelay(service.url);
  cookie = await relay.signIn();
});
afterEach(async () => {
  await relay.close();
  await service.close();
});

interface TlsService {
  readonly url: string;
  /** For each connection, in order: whether it resumed an earlier TLS session. */
  readonly reused: boolean[];
  /** The bodies of the messages. */
  readonly answered: string[];
  /** Ends the answers that are still open. */
  finish(): void;
  close(): Promise<void>;
}

/** Starts a bot service with TLS, whose answers begin with an event and end when `finish` is called. */
async function startTlsService(): Promise<TlsService> {
  const reused: boolean[] = [];
  const answered: string[] = [];
  const open: ServerResponse[] = [];
  const server: Server = createServer(identity, async (req, res) => {
    const body = await text(req);
    answered.push(body);
    open.push(res);
    res.setHeader('Content-Type', 'text/event-stream').write(`data: ${body}\n\n`);
  });
  server.on('secureConnection', (socket: TLSSocket) => reused.push(socket.isSessionReused()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    reused,
    answered,
    finish() {
      for (const res of open.splice(0)) res.end('data: end\n\n');
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Sends a message whose answer begins; `rest` lets the service end the answer, and resolves with the rest of it. */
async function begin(body: string) {
  const response = await relay.send(cookie, { body });
  expect(response.status).toBe(200);
  const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
    .pipeThrough(new TextDecoderStream())
    .getReader();
  const { value: first } = await reader.read();
  const rest = async () => {
    service.finish();
    let all = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) all += part.value;
    return all;
  };
  return { first, rest };
}

describe('a bot service behind TLS that is reached late', () => {
  afterEach(() => void jest.restoreAllMocks());

  test('gets no delayed message that may not wait for the next slot, and counts one from when it is sent', async () => {
    const proxy = await faultProxy(service.url);
    const held = proxy.hold('client', '');
    const opened = proxy.record();
    const environment = { RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' };
    const paced = await startRelay(proxy.url, environment);
    const signedIn = await paced.signIn();
    const send = (n: number) => paced.send(signedIn, { body: `{"n":${n}}` });
    const early = [send(0), send(1)];
    await until(() => opened.length === 2);
    // The slots of the first two are over, those of the others are not.
    advanceClocks({ monotonic: 65_000 });
    const late = [send(2), send(3)];
    await until(() => opened.length === 4);
    held.release();
    const answers = await Promise.all([...early, ...late]);
    expect(answers.map(({ status }) => status)).toEqual([429, 429, 200, 200]);
    expect(await answers[0]?.json()).toMatchObject({ code: 'rate_limited' });
    expect([...service.answered].sort()).toEqual(['{"n":2}', '{"n":3}']);
    await paced.close();
    proxy.close();
  });
});

describe('a bot service behind TLS', () => {
  test('gets a second connection that resumes the session of the first', async () => {
    const one = await begin('{"n":1}');
    const two = await begin('{"n":2}');
    expect(service.reused).toEqual([false, true]);
    expect([await one.rest(), await two.rest()]).toEqual(['data: end\n\n', 'data: end\n\n']);
  });
});

test('a bot service that offers HTTP/2 gets HTTP/1.1 requests', async () => {
  const versions: string[] = [];
  const other = createSecureServer({ ...identity, allowHTTP1: true }, (req, res) => {
    versions.push(req.httpVersion);
    req.resume();
    res.setHeader('Content-Type', 'text/event-stream');
    res.end('data: a\n\n');
  }).listen(0, '127.0.0.1');
  await once(other, 'listening');
  const own = await startRelay(`https://127.0.0.1:${(other.address() as AddressInfo).port}`);
  const response = await own.send(await own.signIn());
  expect([response.status, await response.text(), versions]).toEqual([200, 'data: a\n\n', ['1.1']]);
  await own.close();
  await new Promise((resolve) => other.close(resolve));
});

describe('a bot service that no byte of a message reaches is unreachable', () => {
  afterEach(() => void jest.restoreAllMocks());
  /** Sends a message to a service at `url`; returns the cause in the log. The answer does not show the URL. */
  async function causeOf(url: URL) {
    const own = await startRelay(url);
    const response = await own.send(await own.signIn());
    const body = await response.text();
    const headers = Object.fromEntries(response.headers);
    const answer = { status: response.status, headers, body };
    expectProblem(answer, 502, 'upstream_unreachable', { retryable: 'new message' });
    for (const shown of [url.hostname, url.host, url.port, 'http:', 'ECONN', 'ENOTFOUND', 'CERT'])
      if (shown) expect(body).not.toContain(shown);
    const line = await own.logLine(({ bot }) => bot === 'acme/helper');
    expect(line).toMatchObject({ level: 'warn', status: 502, outcome: 'upstream_unreachable' });
    await own.close();
    return line.cause;
  }

  test('when it refuses the connection', async () => {
    expect(await causeOf(new URL(`http://127.0.0.1:${await freePort()}`))).toBe('ECONNREFUSED');
  });

  test('when its name is not found', async () => {
    const lookup = dns.lookup;
    // The same error as from the system, without a wait for name servers.
    jest.spyOn(dns, 'lookup').mockImplementation(((name: string, ...rest: unknown[]) => {
      if (name !== 'does-not-exist.invalid') return Reflect.apply(lookup, dns, [name, ...rest]);
      const error = Object.assign(new Error(`getaddrinfo ENOTFOUND ${name}`), { code: 'ENOTFOUND' });
      process.nextTick(rest.at(-1) as (error: Error) => void, error);
    }) as typeof dns.lookup);
    expect(await causeOf(new URL('http://does-not-exist.invalid'))).toBe('ENOTFOUND');
  });

  test('when its certificate is not trusted, and it gets no request', async () => {
    let requests = 0;
    const other = createServer(selfSigned(90, { subject: 'other.test' }), () => void requests++).listen(
      0,
      '127.0.0.1',
    );
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    expect(await causeOf(new URL(`https://127.0.0.1:${port}`))).toMatch(/SELF_SIGNED/);
    expect(requests).toBe(0);
    other.close();
  });
});
