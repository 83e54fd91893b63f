import { describe, expect, test } from '@jest/globals';
import {
  asMaybeStarted,
  causeOf,
  PROBLEMS,
  Problem,
  type ProblemCode,
  problemDocument,
  recordOutcome,
} from '../src/errors.ts';

const CAUSE = new Error('canary-cause at https://canary.internal');

/** The only codes that invite another try, if nothing of the message can have run. */
const INVITING: readonly string[] = [
  ...['request_timeout', 'rate_limited', 'too_many_streams', 'too_many_attempts', 'upstream_rate_limited'],
  ...['upstream_unreachable', 'upstream_key_rejected', 'upstream_timeout', 'busy', 'draining'],
  ...['session_store_unavailable', 'identity_provider_unavailable'],
];
const CODES = Object.keys(PROBLEMS) as ProblemCode[];

// `documents/docs.test.ts` compares them with docs/problems.md.
test('each problem has an error status, and a title of its own', () => {
  for (const { status, title } of Object.values(PROBLEMS)) {
    expect(status >= 400 && status <= 599).toBe(true);
    expect(title).toMatch(/^[A-Z].{5,}[^.]$/);
  }
  expect(new Set(Object.values(PROBLEMS).map(({ title }) => title)).size).toBe(CODES.length);
});

describe('a problem document', () => {
  test('has the documented members and no others', () => {
    const problem = new Problem('rate_limited', 'Wait a moment.', {
      cause: CAUSE,
      retryAfter: 3,
      headers: { 'X-Canary': 'canary' },
    });
    const document = problemDocument(problem, 'request-1');
    expect(document).toEqual({
      type: '/docs/problems.md#rate_limited',
      title: 'Too many requests to this path of the bot',
      status: 429,
      code: 'rate_limited',
      detail: 'Wait a moment.',
      requestId: 'request-1',
      retryable: 'new message',
    });
    expect(Object.keys(document)).toHaveLength(7);
  });

  test('has the body and the status of the bot service, if the service refused', () => {
    const upstream = { error: { code: 'NO' } };
    const problem = new Problem('upstream_refused', 'No.', { status: 409, upstream, cause: CAUSE });
    const document = problemDocument(problem, 'request-1');
    expect(document).toMatchObject({ status: 409, code: 'upstream_refused', upstream });
    expect(JSON.stringify(document)).not.toContain('canary');
  });

  test('has a body of null, if the bot service sent null', () => {
    expect(problemDocument(new Problem('upstream_refused', 'No.', { upstream: null }), 'r')).toHaveProperty(
      'upstream',
      null,
    );
  });
});

describe('whether a client may send again', () => {
  const documentOf = (code: ProblemCode, options?: { maybeStarted: true }) =>
    problemDocument(new Problem(code, 'No.', options), 'r');

  test('is told by the codes that invite to it, and by no others', () => {
    const invited = CODES.filter((code) => documentOf(code).retryable === 'new message');
    expect(invited.sort()).toEqual([...INVITING].sort());
    const others = CODES.filter((code) => documentOf(code).retryable === false);
    expect(invited.length + others.length).toBe(CODES.length);
    expect(CODES.filter((code) => 'maybeStarted' in documentOf(code))).toEqual([]);
  });

  test('is denied for every code if the message may have started', () => {
    for (const code of CODES) {
      expect(documentOf(code, { maybeStarted: true })).toMatchObject({
        retryable: false,
        maybeStarted: true,
      });
    }
  });

  test('can be said by the problem itself', () => {
    const problem = new Problem('draining', 'No.', { retryable: false });
    expect(problemDocument(problem, 'r')).toMatchObject({ retryable: false });
  });

  test('is denied by the same problem of a message that may have started', () => {
    const upstream = { error: 'x' };
    const problem = new Problem('upstream_refused', 'No.', { status: 409, upstream, cause: CAUSE });
    const started = asMaybeStarted(problem);
    expect(started).toMatchObject({ code: 'upstream_refused', status: 409, message: 'No.', cause: CAUSE });
    expect(started.options).toEqual({ status: 409, upstream, cause: CAUSE, maybeStarted: true });
    expect(problem.options).not.toHaveProperty('maybeStarted');
  });
});

describe('a problem', () => {
  test('is an error with its code, its detail and its cause', () => {
    const problem = new Problem('upstream_timeout', 'Too slow.', { cause: CAUSE });
    expect(problem).toBeInstanceOf(Error);
    expect(problem).toMatchObject({
      name: 'Problem',
      code: 'upstream_timeout',
      status: 504,
      message: 'Too slow.',
    });
    expect(problem.cause).toBe(CAUSE);
    expect('cause' in new Problem('not_found', 'Nothing.')).toBe(false);
  });

  test('is logged with its code, and with its cause if that is a code', () => {
    const noted = (cause?: unknown) => {
      const locals = {};
      recordOutcome(locals, new Problem('upstream_unreachable', 'Not there.', { cause }));
      return locals;
    };
    expect(noted('ECONNREFUSED')).toEqual({ outcome: 'upstream_unreachable', cause: 'ECONNREFUSED' });
    expect(noted(CAUSE)).toEqual({ outcome: 'upstream_unreachable' });
    expect(noted()).toEqual({ outcome: 'upstream_unreachable' });
  });
});

test('the cause for the log is one word, whatever was thrown', () => {
  const detail = 'No.';
  expect(causeOf(new Problem('upstream_timeout', detail))).toBe('upstream_timeout');
  expect(causeOf(new Problem('upstream_unreachable', detail, { cause: 'ECONNREFUSED' }))).toBe(
    'ECONNREFUSED',
  );
  expect(causeOf(new RangeError('canary'))).toBe('RangeError');
  // Under Jest it is of another realm, and no instance of this `Error`.
  expect(causeOf(new DOMException('canary', 'TimeoutError'))).toBe('TimeoutError');
  for (const thrown of [undefined, null, 'canary', Symbol('canary'), { name: 7 }])
    expect(causeOf(thrown)).toBe('unknown');
});
