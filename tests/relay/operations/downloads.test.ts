import { afterEach, describe, expect, test } from '@jest/globals';
import { describeInChromium, oneChromium } from '../../harness/browser/chromium.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { startFakeLoadBalancer } from '../../harness/faults/fake-load-balancer.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { chunk, plainAnswer } from '../../harness/service/raw-upstream.ts';

const DOWNLOADS = ['GET channel-home/download', 'GET cwd/download'].map(operationAt);
const [HOME = operationAt('')] = DOWNLOADS;

let pair: RelayAndUpstream;
afterEach(() => pair?.close());

const start = async (answer: string | Buffer) => {
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), { OPERATIONS: 'message,files' });
};
const target = (path: string, operation = HOME) =>
  `${operationRequest(operation).path.split('?')[0]}?custom_channel_id=c1&relative_path=${path}`;
const download = (headers: Record<string, string> = {}, path = 'a%2Fb.txt') =>
  call(pair.relay.port, target(path), { headers: { Cookie: pair.cookie, ...headers } });
const raw = (headers: readonly string[] = [], version = '1.1') => {
  const head = [
    `GET ${target('a')} HTTP/${version}`,
    'Host: app.example.com',
    `Cookie: ${pair.cookie}`,
    ...headers,
  ];
  return rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`);
};

describe('a download', () => {
  test.each(DOWNLOADS)(
    'at $path is asked for with the upstream id and the path, and comes as it is',
    async (row) => {
      const bytes = `"customChannelId"${'\0'.repeat(10)}`;
      await start(
        plainAnswer('200 OK', ['Content-Type: text/plain; charset=utf-8', 'X-Trace-Id: t1'], bytes),
      );
      const answer = await call(pair.relay.port, target('a%20b%2Fc.txt', row), {
        headers: { Cookie: pair.cookie },
      });
      expect([answer.status, answer.body]).toEqual([200, bytes]);
      expect(answer.headers).toMatchObject({
        'content-type': 'text/plain; charset=utf-8',
        'content-length': String(bytes.length),
        'content-disposition': 'attachment',
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
        'x-trace-id': 't1',
      });
      expect(answer.headers['content-security-policy']).toMatch(/^default-src 'none';.*;sandbox$/);
      expect(pair.upstream.requests[0]?.requestLine).toMatch(
        new RegExp(
          `^GET /ns/acme/bot-provider/helper/${row.path}\\?custom_channel_id=[0-9a-f]{64}&relative_path=a\\+b%2Fc\\.txt `,
        ),
      );
      expect(await pair.relay.logLine(({ bytes: sent }) => sent === bytes.length)).toMatchObject({
        outcome: 'ok',
        firstByteMs: expect.any(Number),
      });
    },
  );

  test('passes a range on, and its answer back', async () => {
    await start(plainAnswer('206 Partial', ['Content-Range: bytes 2-4/9', 'Accept-Ranges: bytes'], 'cde'));
    const answer = await download({ Range: 'bytes=2-4' });
    expect([answer.status, answer.body]).toEqual([206, 'cde']);
    expect(answer.headers).toMatchObject({ 'content-range': 'bytes 2-4/9', 'accept-ranges': 'bytes' });
    for (const headers of [
      { Range: 'bytes=0-1,3-4' },
      { Range: 'lines=1-2' },
      { Range: 'bytes=0-1', 'If-Range': '"x"' },
      { 'If-None-Match': '"x"', 'If-Modified-Since': 'Sun, 22 Nov 2026 10:00:00 GMT' },
    ])
      await download(headers);
    const [first, ...others] = pair.upstream.requests;
    expect(first?.all('range')).toEqual(['bytes=2-4']);
    for (const { all } of others)
      expect(['range', 'if-range', 'if-none-match', 'if-modified-since'].flatMap(all)).toEqual([]);
  });

  test('says what the service refuses, and 404 as a fact', async () => {
    await start(plainAnswer('416 No', [], ''));
    expectProblem(await download({ Range: 'bytes=9-' }), 416, 'upstream_refused');
    await pair.close();
    await start(jsonAnswer('404 No', { error: 'none' }));
    const missing = await download();
    expect([missing.status, missing.body]).toEqual([404, '{"error":"none"}']);
  });

  const VALIDATORS = ['ETag: "1"', 'Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT', 'Set-Cookie: a=b'];
  test.each([
    ['image/png', 'attachment; filename="x.png"', 'inline; filename="x.png"'],
    ['IMAGE/JPEG', '', 'inline'],
    ['image/webp; q=1', '', 'inline'],
    ['image/gif', 'inline', 'inline'],
    ['application/pdf', 'inline; filename="../x.pdf"', 'attachment'],
    [
      'text/plain',
      `attachment; filename="x.txt"; filename*=UTF-8''%C3%9C.txt`,
      `attachment; filename="x.txt"; filename*=UTF-8''%C3%9C.txt`,
    ],
    ['text/plain', `attachment; filename*=UTF-8''..%2Fx`, 'attachment'],
    ['text/plain', `attachment; filename*=UTF-8''%ff`, 'attachment'],
    ['text/plain', 'attachment; filename="a\\"b"', 'attachment'],
    ['text/html\u0001', 'inline', 'attachment'],
  ])('of %s with %j has %j', async (type, given, expected) => {
    await start(
      plainAnswer(
        '200 OK',
        [`Content-Type: ${type.replace('\u0001', ', x')}`, `Content-Disposition: ${given}`, ...VALIDATORS],
        'x',
      ),
    );
    const { headers } = await download();
    expect(headers['content-disposition']).toBe(expected);
    expect(headers['content-type']).toBe(type.includes('\u0001') ? 'application/octet-stream' : type);
    for (const name of ['etag', 'last-modified', 'set-cookie']) expect(headers).not.toHaveProperty(name);
  });

  test.each([
    ...['text/html', 'application/xhtml+xml', 'image/svg+xml', 'TEXT/XML', 'application/xml', 'text/xsl'],
    ...['text/javascript', 'application/x-javascript', 'text/jscript; charset=utf-8', 'text/livescript'],
    ...['application/ecmascript', 'text/javascript1.5', 'text/css', 'application/wasm'],
  ])('of %s, which a browser runs or applies, has no such type', async (type) => {
    await start(plainAnswer('200 OK', [`Content-Type: ${type}`, 'Content-Disposition: inline'], 'x'));
    const { headers } = await download();
    expect(headers['content-type']).toBe('application/octet-stream');
    expect(headers['content-disposition']).toBe('attachment');
  });

  const OFFICE = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
  test.each([OFFICE, 'application/json', 'text/csv', 'video/mp4', 'application/vnd.ms-excel'])(
    'of %s keeps its type',
    async (type) => {
      await start(plainAnswer('200 OK', [`Content-Type: ${type}`], 'x'));
      expect((await download()).headers['content-type']).toBe(type);
    },
  );

  test('is refused to a page that would run or apply it, before the service is asked', async () => {
    await start(plainAnswer('200 OK', ['Content-Type: text/plain'], 'x'));
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
      const problem = expectProblem(await download({ 'Sec-Fetch-Dest': use }), 400, 'bad_request', {
        retryable: false,
      });
      expect(problem.detail).toMatch(/file/);
    }
    expect(pair.upstream.sockets).toEqual([]);
    for (const use of ['empty', 'document', 'image', 'audio', 'video'])
      expect((await download({ 'Sec-Fetch-Dest': use })).status).toBe(200);
  });

  test.each([
    '..',
    'a/../b',
    '..%2Fx',
    '%252e%252e%2fx',
    '..%5Cx',
    'a%5Cb',
    'a%00',
    '%2500',
    '%25c0%25ae%25c0%25ae%2Fx',
    '',
    '%ff',
  ])('of the path %s is refused', async (path) => {
    await start('');
    const answer = await download({}, path);
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([400, 'invalid_query']);
    expect(pair.upstream.sockets).toEqual([]);
  });

  test.each([
    ['inside its length', `HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc`],
    [
      'inside its chunks',
      Buffer.concat([Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'), chunk('abc')]),
    ],
  ])('that breaks off %s is cut', async (_where, answer) => {
    await start(answer);
    const client = raw();
    await client.waitFor('abc');
    pair.upstream.sockets[0]?.destroy();
    await client.closed;
    expect(client.text()).not.toMatch(/abc\r\n0\r\n/);
    expect(await pair.relay.logLine(({ outcome }) => outcome === 'upstream_stream_broken')).toMatchObject({
      status: 200,
    });
  });

  test('that breaks off is reset for an HTTP/1.0 client, for which the end of the connection ends the file', async () => {
    await start(
      Buffer.concat([Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'), chunk('abc')]),
    );
    const client = raw([], '1.0');
    await client.waitFor('abc');
    pair.upstream.sockets[0]?.destroy();
    expect(await client.closed).toEqual({ error: 'ECONNRESET' });
  });

  test('ends with its session, and at the service when its client leaves', async () => {
    await start(`HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc`);
    const client = raw();
    await client.waitFor('abc');
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    await client.closed;
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    const cookie = await pair.relay.signIn();
    pair = { ...pair, cookie };
    const other = raw();
    await other.waitFor('abc');
    other.socket.destroy();
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });
});

describeInChromium('a file with a script, opened in a browser,', () => {
  const chromium = oneChromium();
  const HTML = '<!doctype html><script>document.title = "ran"; fetch("/ran")</script>';
  const SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("/ran")</script></svg>';

  test.each([
    ['text/html', HTML, 'attachment'],
    ['image/svg+xml', SVG, 'attachment'],
    // A load balancer can change the type: then the policy alone must hold.
    ['text/html', HTML, undefined],
    ['image/svg+xml', SVG, undefined],
  ])('of %s runs nothing (%#)', async (type, content, kept) => {
    await start(plainAnswer('200 OK', [`Content-Type: ${type}`, 'Content-Disposition: inline'], content));
    const asked: string[] = [];
    const front = await startFakeLoadBalancer({
      answer(req, res) {
        asked.push(req.url ?? '');
        if (req.url !== '/file') {
          res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>ok');
          return true;
        }
        void download().then(({ headers, body }) => {
          const { 'content-disposition': disposition, ...rest } = headers;
          res
            .writeHead(
              200,
              kept ? { ...rest, 'content-disposition': disposition } : { ...rest, 'content-type': type },
            )
            .end(body);
        });
        return true;
      },
    });
    const { page } = await chromium.open(`${front.url}/page`);
    const loaded = kept ? page.waitForEvent('download') : page.waitForEvent('load');
    await page.goto(`${front.url}/file`).catch(() => {});
    await loaded;
    await page.waitForTimeout(300);
    expect(asked).toContain('/file');
    expect(asked).not.toContain('/ran');
    expect(await page.title()).not.toBe('ran');
    await front.close();
  });
});

describeInChromium('a file that a page of the same origin uses as a', () => {
  const chromium = oneChromium();
  const SCRIPT = 'globalThis.ran = true; globalThis.postMessage?.("ran");';
  const STYLE = 'body { color: rgb(1, 2, 3) }';

  const USES = {
    script: async (file: string) => {
      const script = Object.assign(document.createElement('script'), { src: file });
      const over = new Promise((done) => Object.assign(script, { onload: done, onerror: done }));
      document.head.append(script);
      await over;
      return 'ran' in globalThis;
    },
    import: (file: string) =>
      new Promise<boolean>((done) => {
        addEventListener('imported', () => done(true));
        addEventListener('refused', () => done(false));
        const tell = (event: string) => `() => dispatchEvent(new Event('${event}'))`;
        const text = `import(${JSON.stringify(file)}).then(${tell('imported')}, ${tell('refused')})`;
        document.head.append(Object.assign(document.createElement('script'), { text }));
      }),
    Worker: (file: string) =>
      new Promise<boolean>((done) => {
        const worker = new Worker(file);
        worker.onmessage = () => done(true);
        worker.onerror = () => done(false);
      }),
    serviceWorker: (file: string) =>
      navigator.serviceWorker.register(file).then(
        () => true,
        () => false,
      ),
    stylesheet: async (file: string) => {
      const link = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: file });
      const over = new Promise((done) => Object.assign(link, { onload: done, onerror: done }));
      document.head.append(link);
      await over;
      return getComputedStyle(document.body).color === 'rgb(1, 2, 3)';
    },
  };
  type Use = keyof typeof USES;

  test.each(Object.keys(USES) as Use[])('%s neither runs nor applies', async (use) => {
    const [type, content] = use === 'stylesheet' ? ['text/css', STYLE] : ['text/javascript', SCRIPT];
    await start(plainAnswer('200 OK', [`Content-Type: ${type}`], content));
    let tellsUse = true;
    const front = await startFakeLoadBalancer({
      answer(req, res) {
        req.headers.cookie = pair.cookie;
        // A browser without these headers is held by the type alone.
        if (!tellsUse) delete req.headers['sec-fetch-dest'];
        const isPage = req.url === '/page';
        const isPlain = req.url === '/plain';
        if (isPage) res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>ok');
        if (isPlain) res.writeHead(200, { 'Content-Type': type, 'Service-Worker-Allowed': '/' }).end(content);
        return isPage || isPlain;
      },
    });
    front.forwardTo(pair.relay.port);
    const ran = async (file: string) => {
      const { page } = await chromium.open(`${front.url}/page`);
      return page.evaluate(USES[use], file);
    };
    expect(await ran('/plain')).toBe(true);
    expect(await ran(target('a.js'))).toBe(false);
    tellsUse = false;
    expect(await ran(target('a.js'))).toBe(false);
    await front.close();
  });
});
