import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { setImmediate, setTimeout as wait } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { FailureNotes } from '../../../src/errors.ts';
import { CLIENT_LEFT } from '../../../src/http/client-connection.ts';
import type { CarriedStream } from '../../../src/http/locals.ts';
import { pipeFile, sendBody } from '../../../src/relay/operations/send-answer.ts';
import { describeInChromium, oneChromium } from '../../harness/browser/chromium.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { dechunk, type RawClient, rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { pass, stopClock } from '../../harness/clock/stop-clock.ts';
import { until } from '../../harness/clock/until.ts';
import { type FakeLoadBalancer, startFakeLoadBalancer } from '../../harness/faults/fake-load-balancer.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { chunk, plainAnswer } from '../../harness/service/raw-upstream.ts';

const HOME = operationAt('GET channel-home/download');
const DOWNLOADS = [HOME, operationAt('GET cwd/download'), operationAt('GET sandbox/:sandbox/fs/file')];

let pair: RelayAndUpstream;
/** What the service answers to the next requests. */
let answer: string | Buffer;
beforeAll(async () => {
  pair = await startWithSandboxes((socket) => void socket.write(answer), {
    OPERATIONS: 'message,files,sandbox',
  });
});
afterAll(() => pair.close());

const closings: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});
function opened(client: RawClient): RawClient {
  closings.push(() => client.socket.destroy());
  return client;
}

const target = (path: string, operation = HOME) => {
  const name = operation === HOME || operation === DOWNLOADS[1] ? 'relative_path' : 'path';
  return `${operationRequest(operation).path.split('?')[0]}?custom_channel_id=c1&${name}=${path}`;
};
const download = (headers: Record<string, string> = {}, path = 'a%2Fb.txt', operation = HOME) =>
  call(pair.relay.port, target(path, operation), {
    headers: { ...operationRequest(operation).headers, Cookie: pair.cookie, ...headers },
  });
const raw = (version = '1.1', cookie = pair.cookie) => {
  const head = [`GET ${target('a')} HTTP/${version}`, 'Host: app.example.com', `Cookie: ${cookie}`];
  return opened(rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`));
};
const newest = () => pair.upstream.requests.at(-1);
const file = (type: string, content = 'x', ...headers: string[]) =>
  plainAnswer('200 OK', [`Content-Type: ${type}`, ...headers], content);

describe('a download', () => {
  test.each(DOWNLOADS)(
    'at $path is asked for with the upstream id and the path, and comes as it is',
    async (row) => {
      const bytes = `"customChannelId"${'\0'.repeat(10)}`;
      answer = file('text/plain; charset=utf-8', bytes, 'X-Trace-Id: t1', 'X-Total-Bytes: 900', 'ETag: "1"');
      const answered = await download({}, 'a%20b%2Fc.txt', row);
      expect([answered.status, answered.body]).toEqual([200, bytes]);
      expect(answered.headers).toMatchObject({
        ...{ 'content-type': 'text/plain; charset=utf-8', 'content-length': String(bytes.length) },
        ...{ 'content-disposition': 'attachment', 'cache-control': 'no-store' },
        ...{ 'x-content-type-options': 'nosniff', 'x-trace-id': 't1', 'x-total-bytes': '900' },
        'content-security-policy': expect.stringMatching(/^default-src 'none';.*;sandbox$/),
      });
      expect(answered.headers).not.toHaveProperty('etag');
      expect(newest()?.requestLine).toMatch(
        new RegExp(
          `/helper/${row.path.replace(':sandbox', 'one')}\\?custom_channel_id=[0-9a-f]{64}&(relative_)?path=a\\+b%2Fc\\.txt `,
        ),
      );
      const { 'x-request-id': id } = answered.headers;
      expect(await pair.relay.logLine(({ requestId }) => requestId === id)).toMatchObject({
        ...{ outcome: 'ok', bytes: bytes.length, firstByteMs: expect.any(Number) },
      });
    },
  );

  test('passes a range on, and its answer back; no other condition', async () => {
    answer = plainAnswer('206 Partial', ['Content-Range: bytes 2-4/9', 'Accept-Ranges: bytes'], 'cde');
    const answered = await download({ Range: 'bytes=2-4' });
    expect([answered.status, answered.body]).toEqual([206, 'cde']);
    expect(answered.headers).toMatchObject({ 'content-range': 'bytes 2-4/9', 'accept-ranges': 'bytes' });
    expect(newest()?.all('range')).toEqual(['bytes=2-4']);
    for (const headers of [
      { Range: 'bytes=0-1,3-4' },
      { Range: 'lines=1-2' },
      { Range: 'bytes=0-1', 'If-Range': '"x"' },
      { 'If-None-Match': '"x"', 'If-Modified-Since': 'Sun, 22 Nov 2026 10:00:00 GMT' },
    ]) {
      await download(headers);
      const names = ['range', 'if-range', 'if-none-match', 'if-modified-since'];
      expect(names.flatMap((name) => newest()?.all(name))).toEqual([]);
    }
  });

  test('says what the service refuses, and 404 as a fact', async () => {
    answer = plainAnswer('416 No', []);
    expectProblem(await download({ Range: 'bytes=9-' }), 416, 'upstream_refused');
    answer = jsonAnswer('404 No', { error: 'none' });
    const missing = await download();
    expect([missing.status, missing.body]).toEqual([404, '{"error":"none"}']);
  });

  const OFFICE = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
  const [ENCODED, PICTURE] = [`attachment; filename="x.txt"; filename*=UTF-8''%C3%9C.txt`, 'inline'];
  test.each([
    ['image/png', 'attachment; filename="x.png"', 'inline; filename="x.png"'],
    ...['IMAGE/JPEG', 'image/webp; q=1', 'image/gif'].map((type) => [type, 'attachment', PICTURE] as const),
    ['application/pdf', 'inline; filename="../x.pdf"', 'attachment'],
    ['text/plain', ENCODED, ENCODED],
    ['text/plain', `attachment; filename*=UTF-8''..%2Fx`, 'attachment'],
    ['text/plain', `attachment; filename*=UTF-8''%ff`, 'attachment'],
    ['text/plain', 'attachment; filename="a\\"b"', 'attachment'],
    ...[OFFICE, 'application/json', 'text/csv'].map((type) => [type, 'inline', 'attachment'] as const),
  ])('of %s with %j has %j', async (type, given, expected) => {
    answer = file(type, 'x', `Content-Disposition: ${given}`);
    const { headers } = await download();
    expect([headers['content-type'], headers['content-disposition']]).toEqual([type, expected]);
  });

  test.each([
    ...['text/html', 'application/xhtml+xml', 'image/svg+xml', 'TEXT/XML', 'application/xml', 'text/xsl'],
    ...['text/javascript', 'text/jscript; charset=utf-8', 'application/ecmascript', 'text/javascript1.5'],
    ...['text/css', 'application/wasm', 'text/html, x'],
  ])('of %s, which a browser runs or applies, has no such type', async (type) => {
    answer = file(type, 'x', 'Content-Disposition: inline');
    const { headers } = await download();
    expect([headers['content-type'], headers['content-disposition']]).toEqual([
      'application/octet-stream',
      'attachment',
    ]);
  });

  test('is refused to a page that would run or apply it, before the service is asked', async () => {
    answer = file('text/plain');
    const before = pair.upstream.requests.length;
    for (const use of [
      'script',
      'worker',
      'sharedworker',
      'serviceworker',
      'style',
      'iframe',
      'object',
      'x',
    ]) {
      const refused = await download({ 'Sec-Fetch-Dest': use });
      expect(expectProblem(refused, 400, 'bad_request', { retryable: false }).detail).toMatch(/file/);
    }
    expect(pair.upstream.requests).toHaveLength(before);
    for (const use of ['empty', 'document', 'image', 'audio', 'video'])
      expect((await download({ 'Sec-Fetch-Dest': use })).status).toBe(200);
  });

  test.each([
    ...['..', 'a/../b', '..%2Fx', '%252e%252e%2fx', '..%5Cx', 'a%00', '%2500'],
    ...['%25c0%25ae%25c0%25ae%2Fx', '', '%ff'],
  ])('of the path %s is refused', async (path) => {
    const before = pair.upstream.requests.length;
    expectProblem(await download({}, path), 400, 'invalid_query');
    expect(pair.upstream.requests).toHaveLength(before);
  });

  const CHUNKED = Buffer.concat([
    Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'),
    chunk('abc'),
  ]);
  test.each([
    ['inside its length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc', '1.1'],
    ['inside its chunks', CHUNKED, '1.1'],
    // For such a client, the end of the connection ends the file.
    ['with HTTP/1.0', CHUNKED, '1.0'],
  ])('that breaks off %s is cut', async (_where, bytes, version) => {
    answer = bytes;
    const client = raw(version);
    await client.waitFor('abc');
    const before = pair.relay.logs.length;
    pair.upstream.sockets.at(-1)?.destroy();
    const { error } = await client.closed;
    if (version === '1.0') expect(error).toBe('ECONNRESET');
    else expect(dechunk(client.text()).complete).toBe(false);
    await until(() =>
      pair.relay.logs
        .slice(before)
        .some(({ outcome, status }) => outcome === 'upstream_stream_broken' && status === 200),
    );
  });

  test('ends with its session, and at the service when its client leaves', async () => {
    answer = 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc';
    const ended = () => until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    const cookie = await pair.relay.signIn();
    const client = raw('1.1', cookie);
    await client.waitFor('abc');
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    await client.closed;
    await ended();
    const other = raw();
    await other.waitFor('abc');
    other.socket.destroy();
    await ended();
  });
});

describeInChromium('in a browser, a file', () => {
  const chromium = oneChromium();
  const HTML = '<!doctype html><script>document.title = "ran"; fetch("/ran")</script>';
  const SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("/ran")</script></svg>';

  /** Starts a front of the relay, with a page of its own. */
  async function startFront(answers: NonNullable<Parameters<typeof startFakeLoadBalancer>[0]>['answer']) {
    const asked: string[] = [];
    const front: FakeLoadBalancer = await startFakeLoadBalancer({
      answer(req, res) {
        asked.push(req.url ?? '');
        if (answers?.(req, res)) return true;
        if (req.url !== '/page') return false;
        res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>ok');
        return true;
      },
    });
    closings.push(front.close);
    front.forwardTo(pair.relay.port);
    return { front, asked };
  }

  test.each([
    ['text/html', HTML, 'attachment'],
    ['image/svg+xml', SVG, 'attachment'],
    // A load balancer can change the type: then the policy alone must hold.
    ['text/html', HTML, undefined],
    ['image/svg+xml', SVG, undefined],
  ])('of %s with a script runs nothing when it is opened (%#)', async (type, content, kept) => {
    answer = file(type, content, 'Content-Disposition: inline');
    const { front, asked } = await startFront((req, res) => {
      if (req.url !== '/file') return false;
      void download().then(({ headers, body }) => {
        const { 'content-disposition': disposition, ...rest } = headers;
        const more = kept ? { 'content-disposition': disposition } : { 'content-type': type };
        res.writeHead(200, { ...rest, ...more }).end(body);
      });
      return true;
    });
    const { page } = await chromium.open(`${front.url}/page`);
    const loaded = kept ? page.waitForEvent('download') : page.waitForEvent('load');
    await page.goto(`${front.url}/file`).catch(() => {});
    await loaded;
    expect(await page.title()).not.toBe('ran');
    // What a script had asked for would come before this.
    await page.goto(`${front.url}/page`);
    expect(asked.filter((path) => path !== '/favicon.ico')).toEqual(['/page', '/file', '/page']);
  });

  const SCRIPT = 'globalThis.ran = true; globalThis.postMessage?.("ran");';
  const STYLE = 'body { color: rgb(1, 2, 3) }';
  const USES = {
    script: async (from: string) => {
      const script = Object.assign(document.createElement('script'), { src: from });
      const over = new Promise((done) => Object.assign(script, { onload: done, onerror: done }));
      document.head.append(script);
      await over;
      return 'ran' in globalThis;
    },
    import: (from: string) =>
      new Promise<boolean>((done) => {
        addEventListener('imported', () => done(true));
        addEventListener('refused', () => done(false));
        const tell = (event: string) => `() => dispatchEvent(new Event('${event}'))`;
        const text = `import(${JSON.stringify(from)}).then(${tell('imported')}, ${tell('refused')})`;
        document.head.append(Object.assign(document.createElement('script'), { text }));
      }),
    Worker: (from: string) =>
      new Promise<boolean>((done) => {
        const worker = new Worker(from);
        worker.onmessage = () => done(true);
        worker.onerror = () => done(false);
      }),
    serviceWorker: (from: string) =>
      navigator.serviceWorker.register(from).then(
        () => true,
        () => false,
      ),
    stylesheet: async (from: string) => {
      const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: from });
      const over = new Promise((done) => Object.assign(link, { onload: done, onerror: done }));
      document.head.append(link);
      await over;
      return getComputedStyle(document.body).color === 'rgb(1, 2, 3)';
    },
  };

  test.each(Object.keys(USES) as (keyof typeof USES)[])(
    'neither runs nor applies when a page of the same origin uses it as a %s',
    async (use) => {
      const [type, content] = use === 'stylesheet' ? ['text/css', STYLE] : ['text/javascript', SCRIPT];
      answer = file(type, content);
      let tellsUse = true;
      const { front } = await startFront((req, res) => {
        req.headers.cookie = pair.cookie;
        // A browser without these headers is held by the type alone.
        if (!tellsUse) delete req.headers['sec-fetch-dest'];
        if (req.url !== '/plain') return false;
        res.writeHead(200, { 'Content-Type': type, 'Service-Worker-Allowed': '/' }).end(content);
        return true;
      });
      const ran = async (from: string) => {
        const { page } = await chromium.open(`${front.url}/page`);
        return page.evaluate(USES[use], from);
      };
      expect(await ran('/plain')).toBe(true);
      expect(await ran(target('a.js'))).toBe(false);
      tellsUse = false;
      expect(await ran(target('a.js'))).toBe(false);
    },
  );
});

/** Longer than a test takes. */
const LONG = 2 ** 31 - 1;
const STALL = 1_000;
const GET = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

async function listen(server: Server | ReturnType<typeof createTcpServer>): Promise<number> {
  closings.push(() => {
    if ('closeAllConnections' in server) server.closeAllConnections();
    server.close();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}
const ask = (port: number) => opened(rawClient(port, GET));
/** Resolves when `value` changes no more, however long all is left alone. */
async function standsStill(value: () => number): Promise<void> {
  let [before, same] = [-1, 0];
  await until(() => {
    const now = value();
    same = now > 0 && now === before ? same + 1 : 0;
    before = now;
    return same === 20;
  });
}
/** Lets `run` serve requests; `over` is how the first one ended. */
async function serving(
  run: (res: ServerResponse, log: FailureNotes) => Promise<unknown>,
): Promise<{ port: number; log: FailureNotes; over: Promise<unknown>; begun: Promise<Socket> }> {
  const log: FailureNotes = {};
  const over = Promise.withResolvers<unknown>();
  const begun = Promise.withResolvers<Socket>();
  const port = await listen(
    createServer((_req, res) => {
      run(res, log).then(
        () => over.resolve('sent'),
        (reason) => {
          res.destroy();
          over.resolve(reason);
        },
      );
      begun.resolve(res.socket as Socket);
    }),
  );
  return { port, log, over: over.promise, begun: begun.promise };
}
const neverStopped = () => new AbortController().signal;

describe('a file, on a clock that the test moves,', () => {
  /** A server that passes on the file of a service, which writes it by itself. */
  async function carrier(
    service: (socket: Socket) => void,
    times: { stallMs?: number; wholeMs?: number } = {},
  ) {
    const sockets: Socket[] = [];
    const from = await listen(
      createTcpServer((socket) => {
        sockets.push(socket.on('error', () => {}));
        closings.push(() => socket.destroy());
        socket.once('data', () => service(socket));
      }),
    );
    const stream: CarriedStream = { bytes: 0 };
    const pieces: Buffer[] = [];
    const served = await serving(async (res, log) => {
      const passed = await new Promise<IncomingMessage>((resolve) => {
        get({ port: from, host: '127.0.0.1', agent: false }, resolve);
      });
      res.setHeader('Content-Length', passed.headers['content-length'] ?? 0);
      passed.on('data', (bytes: Buffer) => void pieces.push(bytes));
      const options = { stallMs: STALL, wholeMs: LONG, ...times };
      return pipeFile(passed, { res, signal: neverStopped(), stream, log, times: options });
    });
    return { ...served, stream, pieces, sockets };
  }
  const begins = (length: number) => `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\nabc`;

  test('comes byte for byte, however slowly the client reads, and what has left is freed', async () => {
    stopClock();
    const bytes = randomBytes(8_000_000);
    const { port, over, stream, pieces } = await carrier((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${bytes.length}\r\n\r\n`);
      socket.write(bytes);
    });
    const client = ask(port);
    client.socket.on('data', () => {
      client.socket.pause();
      globalThis.setImmediate(() => client.socket.resume());
    });
    expect(await over).toBe('sent');
    await client.closed;
    const received = Buffer.concat(client.reads.map((read) => read.bytes));
    expect(received.subarray(-bytes.length).equals(bytes)).toBe(true);
    expect(stream.bytes).toBe(bytes.length);
    expect(pieces.map(({ length }) => length)).toEqual(pieces.map(() => 0));
  });

  test('is cut when the bot service sends nothing for the stall time', async () => {
    stopClock();
    const { port, over, log } = await carrier((socket) => void socket.write(begins(1000)));
    const client = ask(port);
    await client.waitFor('abc');
    pass(STALL);
    expect(await over).toMatchObject({ code: 'upstream_stream_broken', cause: 'ETIMEDOUT' });
    await client.closed;
    expect(client.text()).toMatch(/\r\n\r\nabc$/);
    expect(log).toEqual({});
  });

  test('is cut when the client reads nothing for the stall time, and no more was taken than buffers hold', async () => {
    stopClock();
    const { port, over, log, stream } = await carrier((socket) => {
      socket.write(begins(64_000_000));
      socket.write(Buffer.alloc(64_000_000));
    });
    ask(port).socket.pause();
    await standsStill(() => stream.bytes);
    expect(stream.bytes).toBeLessThan(32_000_000);
    pass(STALL);
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
  });

  test('goes on while bytes come, also after a pause of the process, until the whole time is over', async () => {
    stopClock();
    const { port, over, stream, sockets } = await carrier((socket) => void socket.write(begins(1000)), {
      wholeMs: 4 * STALL,
    });
    const client = ask(port);
    await client.waitFor('abc');
    for (let n = 1; n <= 3; n += 1) {
      // The next thing that the process does is to read.
      await wait(1);
      sockets[0]?.write('x');
      pass(STALL);
      await until(() => stream.bytes === 3 + n);
    }
    pass(STALL - 1);
    sockets[0]?.write('x');
    await until(() => stream.bytes === 7);
    pass(1);
    expect(await over).toMatchObject({ code: 'upstream_stream_broken', cause: 'ETIMEDOUT' });
  });

  test('that broke off before it is passed on is broken at once', async () => {
    const from = await listen(
      createServer((_req, res) => {
        res.writeHead(200, { 'Content-Length': 1000 }).write('abc', () => res.destroy());
      }),
    );
    const broken = await new Promise<IncomingMessage>((resolve) => {
      get({ port: from, host: '127.0.0.1', agent: false }, resolve);
    });
    broken.on('error', () => {});
    await new Promise((resolve) => broken.resume().once('close', resolve));
    const times = { stallMs: LONG, wholeMs: LONG };
    const { port, over } = await serving((res, log) =>
      pipeFile(broken, { res, signal: neverStopped(), stream: { bytes: 0 }, log, times }),
    );
    ask(port);
    expect(await over).toMatchObject({ code: 'upstream_stream_broken', cause: 'ECONNRESET' });
  });
});

describe('a whole answer, on a clock that the test moves,', () => {
  /** More than the buffers between a server and a client hold. */
  const MUCH = Buffer.alloc(24 << 20, 'a');

  /** Sends `MUCH` to a client that reads nothing yet. */
  async function send(wholeMs = LONG, signal = neverStopped()) {
    stopClock();
    const served = await serving((res, log) =>
      sendBody(MUCH, { res, signal, log, times: { stallMs: STALL, wholeMs } }),
    );
    const client = ask(served.port);
    client.socket.pause();
    return { ...served, client };
  }
  /** Reads so much that the server can write again, and not all. */
  async function readSome({ socket }: RawClient, served: Socket): Promise<void> {
    const before = served.bytesWritten;
    while (served.bytesWritten === before) {
      socket.resume();
      await once(socket, 'data');
      socket.pause();
      await setImmediate();
    }
  }

  test('is not cut while its client reads slowly, until the whole time is over', async () => {
    const { client, log, over, begun } = await send(4 * STALL);
    const served = await begun;
    for (let n = 0; n < 4; n += 1) {
      await readSome(client, served);
      pass(STALL - 1);
    }
    expect(served.destroyed).toBe(false);
    await readSome(client, served);
    pass(4);
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
  });

  test('is cut when its client reads nothing for the stall time', async () => {
    const { client, log, over, begun } = await send();
    const served = await begun;
    await standsStill(() => served.bytesWritten);
    pass(STALL);
    expect(await over).toBe(CLIENT_LEFT);
    expect(log).toEqual({ outcome: 'client_stalled' });
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(MUCH.length);
  });

  test('is sent when its client has read it', async () => {
    const { client, log, over } = await send();
    client.socket.resume();
    expect([await over, log]).toEqual(['sent', {}]);
  });

  test('ends with its signal, also with one that has aborted before', async () => {
    const stop = new AbortController();
    const { over, begun } = await send(LONG, stop.signal);
    await begun;
    stop.abort('over');
    expect(await over).toBe('over');
    const { client, over: atOnce } = await send(LONG, stop.signal);
    // The request comes only with the connection.
    client.socket.resume();
    expect(await atOnce).toBe('over');
  });

  test('of an operation is under way until its client has read it', async () => {
    const at = await startRelayAndUpstream(
      (socket) => void socket.write(jsonAnswer('200 OK', 'a'.repeat((1 << 20) - 2))),
    );
    closings.push(at.close);
    const { path } = operationRequest(operationAt('GET channel/metadata'));
    const request = `GET ${path} HTTP/1.1\r\nHost: app.example.com\r\nCookie: ${at.cookie}\r\n\r\n`;
    // So many that the buffers between do not hold all of their answers.
    const client = opened(rawClient(at.relay.port, request.repeat(5)));
    client.socket.pause();
    const ended = () => at.relay.logs.filter(({ bot }) => bot === 'acme/helper').length;
    await standsStill(ended);
    expect(at.upstream.requests.length).toBe(ended() + 1);
    const logout = { method: 'POST', headers: { Cookie: at.cookie } };
    expect((await call(at.relay.port, '/auth/logout', logout)).status).toBe(204);
    expect(await at.relay.logLine(({ outcome }) => outcome === 'session_ended')).toMatchObject({
      status: 200,
    });
    client.socket.destroy();
  });
});
