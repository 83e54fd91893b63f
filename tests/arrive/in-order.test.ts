import { afterEach, expect, test } from '@jest/globals';
import type { ErrorRequestHandler, RequestHandler } from 'express';
import { inOrder } from '../../src/arrive/stages.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let app: TestApp;
afterEach(() => app.close());

const told: ErrorRequestHandler = (error, _req, res, _next) => void res.status(418).end(String(error));

/** Starts an app with these stages, and a route after them that answers with the names of those that ran. */
async function startWith(...stages: (RequestHandler | undefined)[]): Promise<void> {
  app = await startTestApp((on) => {
    on.use(inOrder(stages));
    on.use((req, res) => void res.end(`${req.headers.order}`));
    on.use(told);
  });
}

const named =
  (name: string): RequestHandler =>
  (req, _res, next) => {
    req.headers.order = `${req.headers.order ?? ''}${name}`;
    next();
  };
const later: RequestHandler = (_req, _res, next) => void setImmediate(next);

test('stages run in their order, also after one that goes on later', async () => {
  await startWith(named('a'), undefined, later, named('b'), named('c'));
  expect(await call(app.port, '/')).toMatchObject({ status: 200, body: 'abc' });
});

const fails: RequestHandler = () => {
  throw new Error('refused');
};
const refuses: RequestHandler = (_req, _res, next) => next(new Error('refused'));

const rejects: RequestHandler = async () => {
  throw new Error('refused');
};
const givesNull: RequestHandler = (_req, _res, next) => next(null);
const givesRoute: RequestHandler = (_req, _res, next) => next('route');

test.each([
  ['null', givesNull],
  ['route', givesRoute],
])('no stage is left out after one that gives %s to next', async (_what, stage) => {
  await startWith(named('a'), stage, named('b'));
  expect(await call(app.port, '/')).toMatchObject({ status: 200, body: 'ab' });
});

test.each([
  [
    'throws',
    () => {
      throw undefined;
    },
  ],
  ['rejects with', () => Promise.reject()],
])('a stage that %s nothing refuses the request all the same', async (_how, stage) => {
  await startWith(stage, named('never'));
  expect(await call(app.port, '/')).toMatchObject({
    status: 418,
    body: 'Error: a stage has failed without an error',
  });
});

test.each([
  ['throws', [fails]],
  ['rejects', [rejects]],
  ['rejects after one that goes on later', [later, rejects]],
  ['throws after one that goes on later', [later, fails]],
  ['gives an error to next', [refuses]],
])('no stage runs after one that %s', async (_how, stages) => {
  await startWith(...stages, named('never'));
  expect(await call(app.port, '/')).toMatchObject({ status: 418, body: 'Error: refused' });
});

test('a stage that answers ends the request', async () => {
  await startWith((_req, res) => void res.end('answered'), named('never'));
  expect(await call(app.port, '/')).toMatchObject({ status: 200, body: 'answered' });
});
