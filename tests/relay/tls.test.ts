import dns from 'node:dns';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { createSecureServer } from 'node:http2';
import { createServer, type Server } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import tls, { type TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { ProblemCode } from '../../src/errors.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
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

/** How the service ends a kept connection; `raw` is the TCP connection below it. */
type Close = (socket: TLSSocket, raw: Socket) => unknown;

interface TlsService {
  readonly url: string;
  /** For each connection, in order: whether it resumed an earlier TLS session. */
  readonly reused: boolean[];
  /** The bodies of the messages that were answered, or are being answered. */
  readonly answered: string[];
  /** The bodies of the messages for which `onSecond` was called. */
  readonly dropped: string[];
  /** Called for the second message of a connection; if it is not set, the message is answered. */
  onSecond: Close | undefined;
  /** Ends the answers that are still open. */
  finish(): void;
  close(): Promise<void>;
}

/** Starts a bot service with TLS, whose answers begin with an event and end when `finish` is called. */
async function startTlsService(): Promise<TlsService> {
  const reused: boolean[] = [];
  const answered: string[] = [];
  const dropped: string[] = [];
  const open: ServerResponse[] = [];
  const seen = new WeakSet<object>();
  const raws = new Map<number | undefined, Socket>();
  const server: Server = createServer(identity, async (req, res) => {
    const socket = req.socket as TLSSocket;
    const isSecond = seen.has(socket);
    seen.add(socket);
    const body = await text(req);
    if (isSecond && own.onSecond) {
      dropped.push(body);
      own.onSecond(socket, raws.get(socket.remotePort) as Socket);
      return;
    }
    answered.push(body);
    open.push(res);
    res.setHeader('Content-Type', 'text/event-stream').write(`data: ${body}\n\n`);
  });
  server.on('connection', (raw: Socket) => raws.set(raw.remotePort, raw));
  server.on('secureConnection', (socket: TLSSocket) => reused.push(socket.isSessionReused()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const own: TlsService = {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    reused,
    answered,
    dropped,
    onSecond: undefined,
    finish() {
      for (const res of open.splice(0)) res.end('data: end\n\n');
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return own;
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

async function exchange(body: string): Promise<string> {
  const { first, rest } = await begin(body);
  return first + (await rest());
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
  test('streams its answer event by event', async () => {
    const { first, rest } = await begin('{"n":1}');
    expect(first).toBe('data: {"n":1}\n\n');
    expect(await rest()).toBe('data: end\n\n');
    expect(service.reused).toEqual([false]);
  });

  test('gets a second connection that resumes the session of the first', async () => {
    const one = await begin('{"n":1}');
    const two = await begin('{"n":2}');
    expect(service.reused).toEqual([false, true]);
    expect([await one.rest(), await two.rest()]).toEqual(['data: end\n\n', 'data: end\n\n']);
  });

  test.each<[string, Close, ProblemCode]>([
    ['is ended', (socket) => socket.end(), 'upstream_unreachable'],
    ['is reset', (_socket, raw) => raw.resetAndDestroy(), 'upstream_unreachable'],
    ['is ended behind a byte of an answer', (socket) => socket.end('H'), 'upstream_bad_response'],
  ])('gets no message twice if the kept connection %s at that moment', async (_name, close, code) => {
    await exchange('{"n":1}');
    service.onSecond = close;
    const failure = await failureOf(await relay.send(cookie, { body: '{"n":2}' }));
    expect(failure).toMatchObject({ status: 502, code, maybeStarted: true, retryable: false });
    expect([service.dropped, service.answered]).toEqual([['{"n":2}'], ['{"n":1}']]);
    expect(service.reused).toHaveLength(1);
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

  test('when it does not speak TLS', async () => {
    const other = createTcpServer((socket) => {
      socket.on('error', () => {}).once('data', () => socket.end('HTTP/1.1 400 leak\r\n\r\n'));
    }).listen(0, '127.0.0.1');
    await once(other, 'listening');
    expect(
      await causeOf(new URL(`https://127.0.0.1:${(other.address() as AddressInfo).port}`)),
    ).toBeDefined();
    other.close();
  });
});
