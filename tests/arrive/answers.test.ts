import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { ErrorRequestHandler, Express, Request, RequestHandler, Response } from 'express';
import { problemResponse } from '../../src/arrive/problem-response.ts';
import { inOrder, spreadRequests } from '../../src/arrive/stages.ts';
import { Problem } from '../../src/errors.ts';
import { createLogger } from '../../src/logger.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let app: TestApp;
const start = async (build: (on: Express) => void) => {
  app = await startTestApp(build);
};
afterEach(async () => {
  jest.restoreAllMocks();
  await app?.close();
});

const DETAIL = 'connect to db.internal:5432 as relay failed';

describe('a fault of the relay', () => {
  test.each<[string, RequestHandler]>([
    [
      'thrown',
      () => {
        throw new Error(DETAIL);
      },
    ],
    ['rejected', () => Promise.reject(new TypeError(DETAIL))],
    ['given as a text', (_req, _res, next) => next(DETAIL)],
  ])('that is %s is logged, and the answer does not show it', async (_how, handler) => {
    await start((on) => on.get('/', handler));
    const answer = await call(app.port, '/');
    const { requestId } = expectProblem(answer, 500, 'internal_error');
    expect(answer.body).not.toMatch(/db\.internal|\bat /);
    const line = app.printed.find((text) => text.includes(requestId));
    expect(line).toContain('db.internal');
    expect(JSON.parse(line as string)).toMatchObject({ level: 'error', requestId });
  });

  test('after the headers were sent cuts the connection, so that the answer does not look complete', async () => {
    await start((on) =>
      on.get('/', async (_req, res) => {
        await new Promise((sent) => res.write('the first half', sent));
        throw new Error(DETAIL);
      }),
    );
    const client = rawClient(app.port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1.1 200.*the first half/s);
    expect(client.text()).not.toMatch(/\r\n0\r\n\r\n$|internal_error|db\.internal/);
    // If this threw, Express would cut the connection, too, and print the second fault.
    const res = { headersSent: true, locals: {}, req: { httpVersion: '1.1' }, destroy: jest.fn() };
    problemResponse(createLogger('silent'))(
      new Error(DETAIL),
      {} as Request,
      res as unknown as Response,
      () => {},
    );
    expect(res.destroy).toHaveBeenCalledTimes(1);
  });
});

test('a problem is sent whole, with its status, its headers and the body of the bot service, but without its cause', async () => {
  const more = { headers: { 'X-Extra': 'yes' }, upstream: { reason: 'busy' }, cause: DETAIL };
  await start((on) =>
    on.get('/', () => {
      throw new Problem('upstream_refused', 'No.', { status: 409, retryAfter: 7, ...more });
    }),
  );
  const client = rawClient(app.port, 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  await client.closed;
  const answer = parseAnswer(client.text());
  expect(answer).toMatchObject({ status: 409, headers: { 'retry-after': '7', 'x-extra': 'yes' } });
  expect(JSON.parse(answer.body)).toMatchObject({ code: 'upstream_refused', upstream: { reason: 'busy' } });
  // It has a length, and is not sent in chunks.
  expect(client.text().split('\r\n\r\n')[1]).toBe(answer.body);
  expect(answer.body).not.toContain('db.internal');
});

describe('stages', () => {
  const told: ErrorRequestHandler = (error, _req, res, _next) => void res.status(418).end(String(error));
  /** The answer of an app with these stages, and a route after them that answers with the names of those that ran. */
  async function answerAfter(...stages: (RequestHandler | undefined)[]) {
    await start((on) => {
      on.use(inOrder(stages));
      on.use((req, res) => void res.end(`${req.headers.order}`));
      on.use(told);
    });
    const { status, body } = await call(app.port, '/');
    return [status, body];
  }
  const named =
    (name: string): RequestHandler =>
    (req, _res, next) => {
      req.headers.order = `${req.headers.order ?? ''}${name}`;
      next();
    };
  const later: RequestHandler = (_req, _res, next) => void setImmediate(next);
  const throws = (error?: unknown) => () => {
    throw error;
  };
  const gives =
    (error: unknown): RequestHandler =>
    (_req, _res, next) =>
      next(error);
  const REFUSED = new Error('refused');

  test('run in their order, also after one that goes on later, or gives null or route to next', async () => {
    const stages = [named('a'), undefined, later, named('b'), gives(null), gives('route'), named('c')];
    expect(await answerAfter(...stages)).toEqual([200, 'abc']);
  });

  test.each<[string, RequestHandler[], unknown[]]>([
    ['answers', [(_req, res) => void res.end('answered')], [200, 'answered']],
    ['rejects', [() => Promise.reject(REFUSED)], [418, 'Error: refused']],
    ['throws after one that goes on later', [later, throws(REFUSED)], [418, 'Error: refused']],
    ['gives an error to next', [gives(REFUSED)], [418, 'Error: refused']],
    ['throws nothing', [throws()], [418, 'Error: a stage has failed without an error']],
    ['rejects with nothing', [() => Promise.reject()], [418, 'Error: a stage has failed without an error']],
  ])('do not run after one that %s', async (_how, stages, answer) => {
    expect(await answerAfter(...stages, named('never'))).toEqual(answer);
  });

  /** Hands in so many requests at once, of which each takes `ms`; resolves with those that were begun in each round. */
  async function begin(count: number, ms: number, hasLeft: (n: number, begun: number) => boolean) {
    let now = 0;
    jest.spyOn(performance, 'now').mockImplementation(() => now);
    const stage = spreadRequests();
    const rounds: number[][] = [[]];
    let begun = 0;
    for (let n = 0; n < count; n += 1) {
      const res = {
        get closed() {
          return hasLeft(n, begun);
        },
      };
      stage({} as never, res as never, () => {
        begun += 1;
        now += ms;
        rounds.at(-1)?.push(n);
      });
    }
    while ((rounds.at(-1) as number[]).length > 0) {
      rounds.push([]);
      await new Promise(setImmediate);
    }
    return rounds.slice(0, -1);
  }

  test('begin requests of 2 ms in each round of the event loop, in their order, but not those whose clients have left', async () => {
    expect(await begin(7, 1, () => false)).toEqual([[0, 1], [2, 3], [4, 5], [6]]);
    expect(await begin(3, 5, () => false)).toEqual([[0], [1], [2]]);
    const left = await begin(6, 1, (n, begun) => n % 2 === 0 && begun > 1);
    expect(left).toEqual([
      [0, 1],
      [3, 5],
    ]);
  });
});
