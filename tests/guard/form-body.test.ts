import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type BodyOptions, readForm } from '../../src/http/body.ts';
import { route, type Steps } from '../../src/routes/route.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const FORM = 'application/x-www-form-urlencoded';

let stage: TestApp;
const arrived: URLSearchParams[] = [];
beforeAll(async () => {
  stage = await startTestApp((app) => {
    const keep =
      (options: BodyOptions): Steps =>
      async (req, res) => {
        arrived.push(await readForm(req, options));
        res.end();
      };
    route(app, '/', { post: keep({ maxBytes: 100, timeoutMs: 60_000 }) });
    route(app, '/hasty', { post: keep({ maxBytes: 100, timeoutMs: 50 }) });
  });
});
afterAll(() => stage.close());

const post = (headers: Record<string, string>, body: string | Buffer = 'a=1') =>
  call(stage.port, '/', { method: 'POST', headers, body });

describe('a form', () => {
  test.each([FORM, `${FORM}; charset=utf-8`, ` ${FORM.toUpperCase()} ;x`])(
    'of the type "%s" arrives byte for byte',
    async (type) => {
      const body = Buffer.from([0x61, 0x3d, 0xff, 0x00, 0x26]);
      expect((await post({ 'Content-Type': type, 'Content-Encoding': 'identity' }, body)).status).toBe(200);
      expect([...(arrived.pop() ?? [])]).toEqual([['a', '\xff\0']]);
    },
  );

  test('with an empty body is empty', async () => {
    expect((await post({ 'Content-Type': FORM }, '')).status).toBe(200);
    expect([...(arrived.pop() ?? ['none'])]).toEqual([]);
  });

  test.each<[string, Record<string, string>]>([
    ['JSON', { 'Content-Type': 'application/json' }],
    ['plain text', { 'Content-Type': 'text/plain' }],
    ['in parts', { 'Content-Type': 'multipart/form-data; boundary=x' }],
    ['of no type', {}],
    ['of an empty type', { 'Content-Type': '' }],
    ['of two types', { 'Content-Type': `text/plain, ${FORM}` }],
    ['of a type with the same beginning', { 'Content-Type': `${FORM}2` }],
    ['that is encoded', { 'Content-Type': FORM, 'Content-Encoding': 'gzip' }],
  ])('%s is refused with 415', async (_what, headers) => {
    expectProblem(await post(headers), 415, 'unsupported_media_type');
    expect(arrived).toEqual([]);
  });

  test('that is too large or incomplete is refused', async () => {
    expectProblem(await post({ 'Content-Type': FORM }, 'a'.repeat(101)), 413, 'body_too_large');
    const client = rawClient(
      stage.port,
      `POST /hasty HTTP/1.1\r\nHost: a\r\nContent-Type: ${FORM}\r\nContent-Length: 10\r\n\r\na=`,
    );
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 408, 'request_timeout');
    client.socket.destroy();
    expect(arrived).toEqual([]);
  });
});
