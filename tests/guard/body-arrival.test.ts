import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Request } from 'express';
import type { BodyOptions } from '../../src/http/body.ts';
import { readJson } from '../../src/http/read-json.ts';
import { route, type Steps } from '../../src/routes/route.ts';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const HEAD = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
const NEXT = 'GET /next HTTP/1.1\r\nHost: a\r\n\r\n';
const PART = `400\r\n${' '.repeat(1024)}\r\n`;

let stage: TestApp;
let arrived: Buffer[] = [];
let failed: unknown[] = [];
let lateRequests = 0;
let lateReads = 0;
/** How many listeners a request has after its body was refused. */
const listenersLeft: number[] = [];
beforeAll(async () => {
  stage = await startTestApp((app) => {
    const keep =
      (options: BodyOptions): Steps =>
      async (req, res) => {
        arrived.push((await readJson(req, options)).bytes);
        res.end();
      };
    const late = keep({ maxBytes: 2000, timeoutMs: 10 });
    app.get('/next', (_req, res) => void res.end('the next answer'));
    route(app, '/', { post: keep({ maxBytes: 2000, timeoutMs: 60_000 }) });
    route(app, '/hasty', { post: keep({ maxBytes: 2000, timeoutMs: 50 }) });
    route(app, '/late', {
      async post(req, res) {
        lateRequests += 1;
        await new Promise((resolve) => req.once('close', resolve));
        await new Promise(setImmediate);
        lateReads += 1;
        await late(req, res);
      },
    });
    app.use((error: unknown, req: Request, _res: unknown, next: (error: unknown) => void) => {
      failed.push(error);
      listenersLeft.push(req.listenerCount('data') + req.listenerCount('end'));
      next(error);
    });
  });
});
afterAll(() => stage.close());

describe('a body that is too large', () => {
  test('by its Content-Length is refused before any of it arrives', async () => {
    const client = rawClient(stage.port, `${HEAD}Content-Length: 2001\r\n\r\n`);
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
    client.socket.destroy();
  });

  test('by its chunks is refused while it still arrives, and the connection can be used again', async () => {
    const client = rawClient(stage.port, `${HEAD}Transfer-Encoding: chunked\r\n\r\n${PART}${PART}`);
    await client.waitFor('"}');
    expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
    client.socket.write(`${PART.repeat(100)}0\r\n\r\n${NEXT}`);
    await client.waitFor('the next answer');
    client.socket.destroy();
  });

  test('never reaches the route, and the rest of it has no listener', () => {
    expect(arrived).toHaveLength(0);
    expect(listenersLeft).toEqual([0, 0]);
  });
});

describe('a body that never finishes', () => {
  test.each([
    ['with a Content-Length', 'Content-Length: 20\r\n\r\n{"text":'],
    ['in chunks', 'Transfer-Encoding: chunked\r\n\r\n8\r\n{"text":\r\n'],
    ['of which nothing arrives', 'Content-Length: 20\r\n\r\n'],
  ])('%s is refused in time, and the connection closes', async (_how, rest) => {
    arrived = [];
    const client = rawClient(stage.port, HEAD.replace('/', '/hasty') + rest);
    await client.closed;
    const answer = parseAnswer(client.text());
    expectProblem(answer, 408, 'request_timeout');
    expect(answer.headers.connection).toBe('close');
    expect(arrived).toHaveLength(0);
  });
});

describe('a body that arrives in parts', () => {
  test('is complete when the route gets it', async () => {
    arrived = [];
    const headers = 'Expect: 100-continue\r\nContent-Length: 4\r\n\r\n';
    const client = rawClient(stage.port, HEAD + headers);
    // The head has been read alone.
    await client.waitFor('100 Continue');
    client.socket.write('"ab"');
    await client.waitFor('200 OK');
    expect(arrived.map(String)).toEqual(['"ab"']);
    client.socket.destroy();
  });
});

describe('a client that leaves', () => {
  test('before the route reads the body causes no wait for the body', async () => {
    failed = [];
    arrived = [];
    const client = rawClient(stage.port, `${HEAD.replace('/', '/late')}Content-Length: 20\r\n\r\n{`);
    await until(() => lateRequests === 1);
    client.socket.destroy();
    // A wait for the body would have begun before that of this request, and would end before it.
    await until(() => lateReads === 1);
    const hasty = rawClient(stage.port, `${HEAD.replace('/', '/hasty')}Content-Length: 20\r\n\r\n{`);
    await hasty.closed;
    expectProblem(parseAnswer(hasty.text()), 408, 'request_timeout');
    expect([failed.length, arrived.length]).toEqual([1, 0]);
  });
});
