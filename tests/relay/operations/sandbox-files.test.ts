import { afterEach, describe, expect, test } from '@jest/globals';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import {
  FORM_TYPE,
  type FormPart,
  filePart,
  formOf,
  partsOf,
  textPart,
} from '../../harness/clients/forms.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, wholeStream } from '../../harness/service/raw-upstream.ts';

const READ = operationAt('GET sandbox/:sandbox/fs/file');
const WRITE = operationAt('PUT sandbox/:sandbox/fs/file');
const WATCH = operationAt('GET sandbox/:sandbox/fs/watch');
const OPEN_URL = operationAt('POST sandbox/:sandbox/browser/open-url');
const ROWS = OPERATIONS.filter(({ group }) => group === 'sandbox');

let pair: RelayAndUpstream;
afterEach(() => pair.close());

const start = async (answer: string, environment: Record<string, string> = {}) => {
  pair = await startWithSandboxes((socket) => void socket.write(answer), {
    OPERATIONS: 'message,sandbox',
    ...environment,
  });
};
type Row = (typeof ROWS)[number];
type Query = Readonly<Record<string, string>>;
/** Asks with `query` besides, or in the place of, what a good request has. */
const askWith = (row: Row, query: Query | string, changes: Parameters<typeof ask>[2] = {}) => {
  const { path, method, headers, body } = operationRequest(row, changes);
  const [target = '', search = ''] = path.split('?');
  const all = new URLSearchParams(search);
  if (typeof query !== 'string') for (const [name, value] of Object.entries(query)) all.set(name, value);
  const more = typeof query === 'string' ? `&${query}` : '';
  return call(pair.relay.port, `${target}?${all}${more}`, {
    method,
    headers: { Cookie: pair.cookie, ...headers },
    ...(body !== undefined && { body }),
  });
};
const sentQuery = (at = 0) =>
  Object.fromEntries(
    new URL(pair.upstream.requests[at]?.requestLine.split(' ')[1] ?? '', 'http://a').searchParams,
  );

/** A value of each parameter that goes upstream, and those that do not. */
const GOOD: Readonly<Record<string, readonly string[]>> = {
  path: ['/home/a b/ü.txt', '/', 'a'],
  src: ['/a'],
  dst: ['/b/..c/d..'],
  recursive: ['true', 'false'],
  overwrite: ['true'],
  create_only: ['true'],
  mode: ['0', '420', '4095'],
  offset_bytes: ['0', '123456789012345'],
  limit_bytes: ['1'],
};
const NO_PATHS = [
  '',
  '..',
  '/a/../b',
  '/..',
  'a\\b',
  '/\0',
  '/%2e%2e/a',
  '/%252e%252e%2fa',
  '/a%5cb',
  '/%c0%ae%c0%ae/',
  'x'.repeat(1025),
];
const BAD: Readonly<Record<string, readonly string[]>> = {
  ...{ path: NO_PATHS, src: NO_PATHS, dst: NO_PATHS },
  ...{ recursive: ['1', 'TRUE', ''], overwrite: ['yes'], create_only: ['1'] },
  mode: ['-1', '0o644', '4096', '', '1e2', '99999'],
  offset_bytes: ['-1', '1.5', '', '1234567890123456'],
  limit_bytes: ['-1', 'x', '+1'],
};

describe('the query of an operation on a sandbox', () => {
  test('passes what its row names, and nothing else', async () => {
    await start(jsonAnswer('200 OK', {}));
    for (const row of ROWS.filter(({ carriedBy }) => carriedBy === 'proxy'))
      for (const [name, values] of Object.entries(GOOD))
        for (const value of values) {
          const sent = pair.upstream.requests.length;
          const answer = await askWith(row, { [name]: value, api_key: 'evil', editor: 'evil' });
          expect([row.path, name, value, answer.status]).toEqual([row.path, name, value, 200]);
          const { custom_channel_id: id, ...query } = sentQuery(sent);
          expect(id).toMatch(/^[0-9a-f]{64}$/);
          const isNamed = Object.hasOwn(row.query ?? {}, name);
          expect([row.path, query[name]]).toEqual([row.path, isNamed ? value : undefined]);
          expect(Object.keys(row.query ?? {})).toEqual(expect.arrayContaining(Object.keys(query)));
        }
  });

  test('of a watch passes its path, and whether all below is watched', async () => {
    await start(String(wholeStream('data: 1\n\n')));
    const answer = await askWith(WATCH, {
      path: '/a',
      recursive: 'true',
      overwrite: 'true',
      api_key: 'evil',
    });
    expect([answer.status, answer.body]).toEqual([200, 'data: 1\n\n']);
    const [request] = pair.upstream.requests;
    expect(request?.requestLine).toMatch(/^GET \/ns\/acme\/bot-provider\/helper\/sandbox\/one\/fs\/watch\?/);
    expect(sentQuery()).toEqual({
      ...{ custom_channel_id: expect.stringMatching(/^[0-9a-f]{64}$/), path: '/a', recursive: 'true' },
    });
    expect(request?.all('accept')).toEqual(['text/event-stream']);
  });

  test('is refused with a value that cannot be, one that is missing, or one that comes twice', async () => {
    await start('');
    for (const row of ROWS)
      for (const [name, { required }] of Object.entries(row.query ?? {})) {
        for (const value of BAD[name] ?? []) {
          const answer = await askWith(row, { [name]: value });
          expect([row.path, name, value, answer.status]).toEqual([row.path, name, value, 400]);
          expect(JSON.parse(answer.body)).toMatchObject({ code: 'invalid_query' });
        }
        const [good = ''] = GOOD[name] ?? [];
        const pairOf = `${name}=${encodeURIComponent(good)}`;
        const twice = await askWith(row, required ? pairOf : `${pairOf}&${pairOf}`);
        expectProblem(twice, 400, 'invalid_query');
        const without = { ...row, query: { ...row.query, [name]: { pattern: /^/ } } };
        if (required) expectProblem(await ask(pair, without), 400, 'invalid_query');
      }
    expect(pair.upstream.requests).toEqual([]);
  });
});

describe('a file that is read', () => {
  test('comes with its size and whether it is cut, as a download', async () => {
    const headers = ['Content-Type: text/html', 'X-Total-Bytes: 900', 'X-Truncated: true', 'ETag: "1"'];
    await start(plainAnswer('200 OK', headers, '<b>piece</b>'));
    const answer = await askWith(READ, { path: '/x.html', offset_bytes: '5', limit_bytes: '12' });
    expect([answer.status, answer.body]).toEqual([200, '<b>piece</b>']);
    expect(answer.headers).toMatchObject({
      ...{ 'x-total-bytes': '900', 'x-truncated': 'true', 'content-disposition': 'attachment' },
      ...{ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' },
      'content-security-policy': expect.stringMatching(/;sandbox$/),
    });
    expect(answer.headers).not.toHaveProperty('etag');
    expect(sentQuery()).toMatchObject({ path: '/x.html', offset_bytes: '5', limit_bytes: '12' });
  });

  test('can be read by a range', async () => {
    await start(plainAnswer('206 Partial', ['Content-Range: bytes 2-4/9', 'X-Total-Bytes: 9'], 'cde'));
    const answer = await ask(pair, READ, {
      headers: { Range: 'bytes=2-4' },
    });
    expect([answer.status, answer.body]).toEqual([206, 'cde']);
    expect(answer.headers).toMatchObject({ 'content-range': 'bytes 2-4/9', 'x-total-bytes': '9' });
    expect(pair.upstream.requests[0]?.all('range')).toEqual(['bytes=2-4']);
  });
});

describe('a file that is written', () => {
  const write = (parts: readonly FormPart[], query: Query = {}) =>
    askWith(WRITE, query, {
      body: formOf(parts),
      headers: { 'Content-Type': FORM_TYPE },
    });
  const closed = () => until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));

  test('goes upstream as the only part of a form, with its conversation in the query', async () => {
    await start(jsonAnswer('200 OK', { data: { bytesWritten: 5 } }));
    const bytes = 'a"\r\n\0';
    const answer = await write([filePart(bytes, 'name="file"; filename="blob"')], {
      ...{ path: '/a.txt', mode: '384', create_only: 'true' },
    });
    expect([answer.status, answer.body]).toEqual([200, '{"data":{"bytesWritten":5}}']);
    const [request] = pair.upstream.requests;
    expect(request?.requestLine).toMatch(/^PUT \/ns\/acme\/bot-provider\/helper\/sandbox\/one\/fs\/file\?/);
    expect(sentQuery()).toMatchObject({ path: '/a.txt', mode: '384', create_only: 'true' });
    const parts = partsOf(request?.body ?? Buffer.alloc(0), request?.all('content-type')[0]);
    expect(parts).toEqual([
      {
        head: 'Content-Disposition: form-data; name="file"; filename="blob"\r\nContent-Type: text/plain',
        body: bytes,
      },
    ]);
  });

  test.each([
    ['a conversation', [filePart('x'), textPart('c1')]],
    ['another conversation', [textPart('c2'), filePart('x')]],
    ['another text', [filePart('x'), textPart('/etc', 'path')]],
    ['two files', [filePart('x'), filePart('y')]],
    ['a file of another name', [filePart('x', 'name="upload"; filename="a"')]],
    ['no file', []],
  ] as const)('is refused in a form with %s', async (_what, parts) => {
    await start(jsonAnswer('200 OK', {}));
    expectProblem(await write(parts), 400, 'invalid_form');
    await closed();
    expect(pair.upstream.requests).toEqual([]);
  });

  test('is refused without a form, or with the conversation in the form alone', async () => {
    await start('');
    const json = await ask(pair, WRITE, {
      headers: { 'Content-Type': 'application/json' },
    });
    expectProblem(json, 415, 'unsupported_media_type');
    const { method, headers, body } = operationRequest(WRITE);
    const answer = await call(
      pair.relay.port,
      operationRequest(WRITE).path.replace('custom_channel_id', 'x'),
      {
        ...{ method, headers: { Cookie: pair.cookie, ...headers }, body: body ?? '' },
      },
    );
    expectProblem(answer, 400, 'invalid_conversation');
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('has at most MAX_UPLOAD_BYTES', async () => {
    await start(jsonAnswer('200 OK', {}), { MAX_UPLOAD_BYTES: '1000' });
    expect((await write([filePart(Buffer.alloc(1000))])).status).toBe(200);
    expectProblem(await write([filePart(Buffer.alloc(1001))]), 413, 'body_too_large');
    expectProblem(await write([filePart(Buffer.alloc(70_000))]), 413, 'body_too_large');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('is sent once: with a refused key it is 502, and otherwise it may have been written', async () => {
    await start(plainAnswer('401 No', []), { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` });
    expectProblem(await write([filePart('x')]), 502, 'upstream_key_rejected', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(1);
    await pair.close();
    await start(plainAnswer('500 Oh', []));
    expectProblem(await write([filePart('x')]), 502, 'upstream_bad_response', {
      ...{ maybeStarted: true, retryable: false },
    });
  });

  test('is no file that a message may name', async () => {
    await start(jsonAnswer('200 OK', { blobId: 'b1' }), { OPERATIONS: 'message,sandbox,files' });
    expect((await write([filePart('x')])).status).toBe(200);
    const message = await call(pair.relay.port, '/ns/acme/bot-provider/helper/message/sse', {
      method: 'POST',
      headers: { Cookie: pair.cookie, 'Content-Type': 'application/json' },
      body: JSON.stringify({ customChannelId: 'c1', blobIds: ['b1'] }),
    });
    expectProblem(message, 403, 'not_your_conversation');
  });
});

describe('the address of the browser of a sandbox', () => {
  test('is what the service answers; the page sends none', async () => {
    const body = { data: { openURL: 'https://sandbox.example/t/1' } };
    await start(jsonAnswer('200 OK', body));
    const answer = await askWith(OPEN_URL, {
      url: 'https://evil.example/',
      openURL: 'https://evil.example/',
    });
    expect([answer.status, answer.body]).toEqual([200, JSON.stringify(body)]);
    expect(Object.keys(sentQuery())).toEqual(['custom_channel_id']);
    // Clients send the type of a body that they do not send.
    const typed = { 'Content-Type': 'application/json' };
    expect((await ask(pair, OPEN_URL, { headers: typed })).status).toBe(200);
    const withBody = await ask(pair, OPEN_URL, { headers: typed, body: '{"url":"https://evil.example/"}' });
    expectProblem(withBody, 413, 'body_too_large');
    expect(JSON.stringify(pair.upstream.requests)).not.toContain('evil');
  });
});
