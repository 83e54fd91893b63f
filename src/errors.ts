/**
 * Every code that an answer, an error event or a log line can carry, with its HTTP status and title.
 * `upstream_refused` keeps the status of the bot service; the last group ends streams.
 */
export const PROBLEMS = {
  bad_request: { status: 400, title: 'The request is not valid HTTP' },
  invalid_json: { status: 400, title: 'The body is not JSON' },
  invalid_query: { status: 400, title: 'The query is not what this path takes' },
  sign_in_failed: { status: 400, title: 'The sign-in did not come to its end' },
  invalid_logout_token: { status: 400, title: 'The logout token is not valid' },
  upstream_refused: { status: 400, title: 'The bot service refused the message' },
  unauthenticated: { status: 401, title: 'Sign in first' },
  invalid_credentials: { status: 401, title: 'Wrong user name or password' },
  not_allowed: { status: 403, title: 'Not allowed to use this' },
  cross_site_request: { status: 403, title: 'Requests from this site are not allowed' },
  not_found: { status: 404, title: 'There is nothing at this path' },
  unknown_bot: { status: 404, title: 'There is no such bot' },
  method_not_allowed: { status: 405, title: 'This path does not take that method' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  body_too_large: { status: 413, title: 'The body is too large' },
  unsupported_media_type: { status: 415, title: 'The body is not of the type that this path takes' },
  unknown_host: { status: 421, title: 'This host name is not served here' },
  rate_limited: { status: 429, title: 'Too many messages to this bot' },
  too_many_streams: { status: 429, title: 'Too many open streams' },
  too_many_attempts: { status: 429, title: 'Too many attempts' },
  upstream_rate_limited: { status: 429, title: 'The bot service is busy' },
  headers_too_large: { status: 431, title: 'The request headers are too large' },
  internal_error: { status: 500, title: 'Something went wrong in the relay' },
  upstream_unreachable: { status: 502, title: 'The bot service could not be reached' },
  upstream_key_rejected: { status: 502, title: 'The bot service rejected the relay' },
  upstream_bad_response: {
    status: 502,
    title: 'The bot service answered with something that cannot be passed on',
  },
  answer_lost: { status: 502, title: 'The bot may have run, but its answer is lost' },
  session_store_unavailable: { status: 503, title: 'Sessions are not available right now' },
  identity_provider_unavailable: { status: 503, title: 'Nobody can sign in right now' },
  busy: { status: 503, title: 'Too many people sign in at this moment' },
  draining: { status: 503, title: 'The relay is shutting down' },
  upstream_timeout: { status: 504, title: 'The bot service did not answer in time' },

  upstream_stream_broken: { status: 502, title: 'The stream of the bot service broke off' },
  deadline_exceeded: { status: 504, title: 'The answer took longer than allowed' },
  session_ended: { status: 401, title: 'The session has ended' },
} as const satisfies Record<string, { status: number; title: string }>;

export type ProblemCode = keyof typeof PROBLEMS;

export interface ProblemOptions {
  /** Replaces the code's status; for `upstream_refused`. */
  status?: number;
  /** Whole seconds, sent as `Retry-After`. */
  retryAfter?: number;
  /** Response headers that belong to this problem, such as `Allow`. */
  headers?: Record<string, string>;
  /** The bot service's own JSON error body, with secrets masked. */
  upstream?: unknown;
  /** What went wrong underneath: an error, or the error code of a system or parser. Logged, never sent. */
  cause?: unknown;
  /** How the log tells of it, where its status does not say: `warn` for what only the operator can mend. */
  level?: 'warn';
  /** Whom it refuses, where no session says so. Logged, never sent. */
  userId?: string;
}

/** What the log tells of a request that has failed. */
export interface FailureNotes {
  outcome?: string;
  cause?: string;
  level?: 'warn';
  userId?: string;
}

/** A refusal or failure with a code of the table; what every stage throws or passes on. */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly status: number;
  readonly options: ProblemOptions;

  /** `detail` is one sentence for the person who reads it; it must name no host and no secret. */
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(detail, options.cause === undefined ? {} : { cause: options.cause });
    this.name = 'Problem';
    this.code = code;
    this.status = options.status ?? PROBLEMS[code].status;
    this.options = options;
  }
}

/** The response headers that go with a problem. */
export function problemHeaders({ options }: Problem): Record<string, string> {
  const { retryAfter, headers } = options;
  return { ...(retryAfter !== undefined && { 'Retry-After': String(retryAfter) }), ...headers };
}

/** Notes on the request's locals how it ended, for the log. */
export function recordOutcome(locals: FailureNotes, problem: Problem): void {
  const { level, userId } = problem.options;
  locals.outcome = problem.code;
  if (typeof problem.cause === 'string') locals.cause = problem.cause;
  if (level !== undefined) locals.level = level;
  if (userId !== undefined) locals.userId = userId;
}

/** What a client reads: a problem details document (RFC 9457 §3) with the members `code` and `requestId`. */
export interface ProblemDocument {
  type: 'about:blank';
  title: string;
  status: number;
  code: ProblemCode;
  detail: string;
  requestId: string;
  upstream?: unknown;
}

/** The document of a problem, for the answer to the request `requestId`. */
export function problemDocument(problem: Problem, requestId: string): ProblemDocument {
  const { upstream } = problem.options;
  return {
    type: 'about:blank',
    title: PROBLEMS[problem.code].title,
    status: problem.status,
    code: problem.code,
    detail: problem.message,
    requestId,
    ...(upstream === undefined ? {} : { upstream }),
  };
}
