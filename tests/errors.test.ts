import { describe, expect, test } from '@jest/globals';
import {
  asMaybeStarted,
  causeOf,
  PROBLEMS,
  Problem,
  type ProblemCode,
  problemDocument,
  type Retryable,
  recordOutcome,
} from '../src/errors.ts';

const CAUSE = new Error('canary-cause at https://canary.internal');

/** The statuses of all codes, as documented. */
const CONTRACT: Record<ProblemCode, number> = {
  bad_request: 400,
  invalid_json: 400,
  invalid_query: 400,
  invalid_form: 400,
  invalid_conversation: 400,
  sign_in_failed: 400,
  invalid_logout_token: 400,
  upstream_refused: 400,
  unauthenticated: 401,
  invalid_credentials: 401,
  not_your_conversation: 403,
  not_allowed: 403,
  cross_site_request: 403,
  not_found: 404,
  unknown_bot: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  body_too_large: 413,
  unsupported_media_type: 415,
  unknown_host: 421,
  rate_limited: 429,
  too_many_streams: 429,
  too_many_attempts: 429,
  upstream_rate_limited: 429,
  headers_too_large: 431,
  internal_error: 500,
  operation_not_enabled: 501,
  upstream_unreachable: 502,
  upstream_key_rejected: 502,
  upstream_bad_response: 502,
  answer_lost: 502,
  session_store_unavailable: 503,
  identity_provider_unavailable: 503,
  busy: 503,
  draining: 503,
  upstream_timeout: 504,
  upstream_stream_broken: 502,
  deadline_exceeded: 504,
  session_ended: 401,
  stopped: 409,
  reader_too_slow: 408,
  run_over: 410,
  run_not_kept: 410,
};

/** What a client is told about another try, if nothing of its message can have run. */
const RETRYABLE: Record<ProblemCode, Retryable> = {
  bad_request: false,
  invalid_json: false,
  invalid_query: false,
  invalid_form: false,
  invalid_conversation: false,
  sign_in_failed: false,
  invalid_logout_token: false,
  upstream_refused: false,
  unauthenticated: false,
  invalid_credentials: false,
  not_your_conversation: false,
  not_allowed: false,
  cross_site_request: false,
  not_found: false,
  unknown_bot: false,
  method_not_allowed: false,
  request_timeout: 'new message',
  body_too_large: false,
  unsupported_media_type: false,
  unknown_host: false,
  rate_limited: 'new message',
  too_many_streams: 'new message',
  too_many_attempts: 'new message',
  upstream_rate_limited: 'new message',
  headers_too_large: false,
  internal_error: false,
  operation_not_enabled: false,
  upstream_unreachable: 'new message',
  upstream_key_rejected: 'new message',
  upstream_bad_response: false,
  answer_lost: false,
  session_store_unavailable: 'new message',
  identity_provider_unavailable: 'new message',
  busy: 'new message',
  draining: 'new message',
  upstream_timeout: 'new message',
  upstream_stream_broken: false,
  deadline_exceeded: false,
  session_ended: false,
  stopped: false,
  reader_too_slow: false,
  run_over: false,
  run_not_kept: false,
};

describe('the table of problems', () => {
  test('has the documented statuses, and no other code', () => {
    const statuses = Object.entries(PROBLEMS).map(([code, { status }]) => [code, status]);
    expect(Object.fromEntries(statuses)).toEqual(CONTRACT);
  });

  test.each(Object.entries(PROBLEMS))(
    'has an error status and a title for %s',
    (_code, { status, title }) => {
      expect(status >= 400 && status <= 599).toBe(true);
      expect(title).toMatch(/^[A-Z].{5,}[^.]$/);
    },
  );

  test('has a different title for each code', () => {
    const titles = Object.values(PROBLEMS).map(({ title }) => title);
    expect(new Set(titles).size).toBe(titles.length);
  });
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
      type: 'about:blank',
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
  test.each(Object.entries(RETRYABLE))('what failed with %s is told: %s', (code, retryable) => {
    const document = problemDocument(new Problem(code as ProblemCode, 'No.'), 'r');
    expect(document.retryable).toBe(retryable);
    expect(document).not.toHaveProperty('maybeStarted');
  });

  test.each(Object.keys(RETRYABLE))('is denied for %s if the message may have started', (code) => {
    const problem = new Problem(code as ProblemCode, 'No.', { maybeStarted: true });
    expect(problemDocument(problem, 'r')).toMatchObject({ retryable: false, maybeStarted: true });
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
