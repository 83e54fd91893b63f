import { afterEach, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../../support/call.ts';
import { describeInChromium, oneChromium } from '../../support/chromium.ts';
import { startFakeLoadBalancer } from '../../support/fake-load-balancer.ts';
import { operationAt, operationRequest } from '../../support/operation-requests.ts';
import { rawClient } from '../../support/raw-client.ts';
import { chunk } from '../../support/raw-upstream.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../../support/relay-and-upstream.ts';
import { jsonAnswer } from '../../support/suspend.ts';

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
    ['text/html', 'inline; filename="x.html"', 'attachment; filename="x.html"'],
    ['image/svg+xml', 'inline; filename=x.svg', 'attachment; filename="x.svg"'],
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
    // A service's type can be wrong: then the policy alone must hold.
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
          res.writeHead(200, kept ? { ...rest, 'content-disposition': disposition } : rest).end(body);
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
