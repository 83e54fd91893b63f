import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { ErrorRequestHandler, RequestHandler } from 'express';
import { inOrder, spreadRequests } from '../../src/arrive/stages.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let app: TestApp | undefined;
afterEach(async () => {
  jest.restoreAllMocks();
  await app?.close();
  app = undefined;
});

const told: ErrorRequestHandler = (error, _req, res, _next) => void res.status(418).end(String(error));

/** The answer of an app with these stages, and a route after them that answers with the names of those that ran. */
async function answerAfter(...stages: (RequestHandler | undefined)[]) {
  app = await startTestApp((on) => {
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
const throws =
  (error?: unknown): RequestHandler =>
  () => {
    throw error;
  };
const rejects =
  (error?: unknown): RequestHandler =>
  () =>
    Promise.reject(error);
const gives =
  (error: unknown): RequestHandler =>
  (_req, _res, next) =>
    next(error);
const REFUSED = new Error('refused');

describe('stages', () => {
  test('run in their order, also after one that goes on later, or gives null or route to next', async () => {
    const stages = [named('a'), undefined, later, named('b'), gives(null), gives('route'), named('c')];
    expect(await answerAfter(...stages)).toEqual([200, 'abc']);
  });

  test.each<[string, RequestHandler[], string]>([
    ['throws', [throws(REFUSED)], 'refused'],
    ['rejects', [rejects(REFUSED)], 'refused'],
    ['rejects after one that goes on later', [later, rejects(REFUSED)], 'refused'],
    ['throws after one that goes on later', [later, throws(REFUSED)], 'refused'],
    ['gives an error to next', [gives(REFUSED)], 'refused'],
    ['throws nothing', [throws()], 'a stage has failed without an error'],
    ['rejects with nothing', [rejects()], 'a stage has failed without an error'],
  ])('do not run after one that %s', async (_how, stages, error) => {
    expect(await answerAfter(...stages, named('never'))).toEqual([418, `Error: ${error}`]);
  });

  test('do not run after one that answers', async () => {
    expect(await answerAfter((_req, res) => void res.end('answered'), named('never'))).toEqual([
      200,
      'answered',
    ]);
  });
});

describe('many requests that come in one round of the event loop', () => {
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

  test('are all begun in their order, those of 2 ms in each round', async () => {
    expect(await begin(7, 1, () => false)).toEqual([[0, 1], [2, 3], [4, 5], [6]]);
    expect(await begin(3, 5, () => false)).toEqual([[0], [1], [2]]);
  });

  test('are not begun if their clients have left while they waited', async () => {
    expect(await begin(6, 1, (n, begun) => n % 2 === 0 && begun > 1)).toEqual([
      [0, 1],
      [3, 5],
    ]);
  });
});
