import { describe, expect, test } from '@jest/globals';
import { PROBLEMS, Problem, type ProblemCode, problemDocument, recordOutcome } from '../src/errors.ts';

const CAUSE = new Error('canary-cause at https://canary.internal');

/** The table of the contract. */
const CONTRACT: Record<ProblemCode, number> = {
  bad_request: 400,
  invalid_json: 400,
  invalid_query: 400,
  sign_in_failed: 400,
  invalid_logout_token: 400,
  upstream_refused: 400,
  unauthenticated: 401,
  invalid_credentials: 401,
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
};

describe('the table of problems', () => {
  test('has the statuses of the contract and no other code', () => {
    const statuses = Object.entries(PROBLEMS).map(([code, { status }]) => [code, status]);
    expect(Object.fromEntries(statuses)).toEqual(CONTRACT);
  });

  test.each(Object.entries(PROBLEMS))('%s is an error and has a title', (_code, { status, title }) => {
    expect(status >= 400 && status <= 599).toBe(true);
    expect(title).toMatch(/^[A-Z].{5,}[^.]$/);
  });

  test('has a title for each code that tells it from the others', () => {
    const titles = Object.values(PROBLEMS).map(({ title }) => title);
    expect(new Set(titles).size).toBe(titles.length);
  });
});

describe('a problem document', () => {
  test('has the members of the contract and nothing else', () => {
    const problem = new Problem('rate_limited', 'Wait a moment.', {
      cause: CAUSE,
      retryAfter: 3,
      headers: { 'X-Canary': 'canary' },
    });
    const document = problemDocument(problem, 'request-1');
    expect(document).toEqual({
      type: 'about:blank',
      title: 'Too many messages to this bot',
      status: 429,
      code: 'rate_limited',
      detail: 'Wait a moment.',
      requestId: 'request-1',
    });
    expect(Object.keys(document)).toHaveLength(6);
  });

  test('carries the body and the status of the bot service where it refused', () => {
    const upstream = { error: { code: 'NO' } };
    const problem = new Problem('upstream_refused', 'No.', { status: 409, upstream, cause: CAUSE });
    const document = problemDocument(problem, 'request-1');
    expect(document).toMatchObject({ status: 409, code: 'upstream_refused', upstream });
    expect(JSON.stringify(document)).not.toContain('canary');
  });

  test('carries also a body that is null, since the bot service sent one', () => {
    expect(problemDocument(new Problem('upstream_refused', 'No.', { upstream: null }), 'r')).toHaveProperty(
      'upstream',
      null,
    );
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

  test('is noted for the log by its code, and by its cause where that is a code as well', () => {
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
