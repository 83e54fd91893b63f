import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Request, Response } from 'express';
import { problemResponse } from '../../src/arrive/problem-response.ts';
import { Problem } from '../../src/errors.ts';
import { createLogger } from '../../src/logger.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const DETAIL = 'connect to db.internal:5432 as relay failed';

let stage: TestApp;
beforeAll(async () => {
  stage = await startTestApp((app) => {
    app.get('/thrown', () => {
      throw new Error(DETAIL);
    });
    app.get('/rejected', async () => {
      throw new TypeError(DETAIL);
    });
    app.get('/text', (_req, _res, next) => next(DETAIL));
    app.get('/half', async (_req, res) => {
      await new Promise((sent) => res.write('the first half', sent));
      throw new Error(DETAIL);
    });
    app.get('/problem', () => {
      throw new Problem('upstream_refused', 'No.', {
        status: 409,
        retryAfter: 7,
        headers: { 'X-Extra': 'yes' },
        upstream: { reason: 'busy' },
        cause: DETAIL,
      });
    });
  });
});
afterAll(() => stage.close());

describe('a fault of the relay', () => {
  test.each(['/thrown', '/rejected', '/text'])(
    'at %s is logged, and the answer does not show it',
    async (path) => {
      const answer = await call(stage.port, path);
      const { requestId } = expectProblem(answer, 500, 'internal_error');
      expect(answer.body).not.toMatch(/db\.internal|\bat /);
      const line = stage.printed.find((text) => text.includes(requestId));
      expect(line).toContain('db.internal');
      expect(JSON.parse(line as string)).toMatchObject({ level: 'error', requestId });
    },
  );

  test('after the headers were sent cuts the connection, so that the answer does not look complete', async () => {
    const client = rawClient(stage.port, 'GET /half HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1.1 200.*the first half/s);
    expect(client.text()).not.toMatch(/\r\n0\r\n\r\n$|internal_error|db\.internal/);
  });

  test('after the headers were sent causes no second fault', () => {
    const req = { httpVersion: '1.1' };
    const res = { headersSent: true, locals: {}, req, destroy: jest.fn() };
    const respond = problemResponse(createLogger('silent'));
    // If this threw, Express would cut the connection, too, and print the second fault.
    respond(new Error(DETAIL), {} as Request, res as unknown as Response, () => {});
    expect(res.destroy).toHaveBeenCalledTimes(1);
  });
});

describe('a problem', () => {
  test('is sent with its status, its headers and the body of the bot service, but without its cause', async () => {
    const answer = await call(stage.port, '/problem');
    expect(answer).toMatchObject({ status: 409, headers: { 'retry-after': '7', 'x-extra': 'yes' } });
    expect(JSON.parse(answer.body)).toMatchObject({ code: 'upstream_refused', upstream: { reason: 'busy' } });
    expect(answer.body).not.toContain('db.internal');
  });

  test('is sent with a correct Content-Length and not in chunks', async () => {
    const client = rawClient(stage.port, 'GET /problem HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    await client.closed;
    expect(parseAnswer(client.text()).body).toBe(client.text().split('\r\n\r\n')[1]);
  });
});
