/**
 * Whether a client may send again what failed. `new message`: nothing of it has run, and another try can help. false: it
 * may have run, is over, or would fail again. `same message`: an earlier try may have run, and the same message, sent
 * again, gets that run.
 */
export type Retryable = false | 'new message' | 'same message';

/**
 * Every code of an answer, an error event or a log line, with its HTTP status and title. `upstream_refused` keeps the
 * status of the bot service; the codes of the last group end streams, `stopped` one that has not begun.
 */
export const PROBLEMS = {
  bad_request: { status: 400, title: 'The request is not valid' },
  invalid_json: { status: 400, title: 'The body is not JSON' },
  invalid_query: { status: 400, title: 'The query is not valid for this path' },
  invalid_form: { status: 400, title: 'The form is not one with a file that can be used' },
  invalid_conversation: { status: 400, title: 'The conversation is not named as it must be' },
  sign_in_failed: { status: 400, title: 'The sign-in was not completed' },
  invalid_logout_token: { status: 400, title: 'The logout token is not valid' },
  upstream_refused: { status: 400, title: 'The bot service refused the request' },
  unauthenticated: { status: 401, title: 'Sign in first' },
  invalid_credentials: { status: 401, title: 'Wrong user name or password' },
  not_your_conversation: { status: 403, title: 'This is not your conversation' },
  not_allowed: { status: 403, title: 'Not allowed to use this' },
  cross_site_request: { status: 403, title: 'Requests from this site are not allowed' },
  not_found: { status: 404, title: 'There is nothing at this path' },
  unknown_bot: { status: 404, title: 'There is no such bot' },
  method_not_allowed: { status: 405, title: 'This path does not take that method' },
  run_over: { status: 410, title: 'The run of this message is over' },
  run_not_kept: { status: 410, title: 'The beginning of this run is not kept' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  body_too_large: { status: 413, title: 'The body is too large' },
  unsupported_media_type: { status: 415, title: 'This path does not take a body of this type' },
  unknown_host: { status: 421, title: 'This host name is not served here' },
  rate_limited: { status: 429, title: 'Too many requests to this path of the bot' },
  too_many_streams: { status: 429, title: 'Too many open streams' },
  too_many_attempts: { status: 429, title: 'Too many requests, sign-in attempts or bytes' },
  upstream_rate_limited: { status: 429, title: 'The bot service is busy' },
  headers_too_large: { status: 431, title: 'The request headers are too large' },
  internal_error: { status: 500, title: 'Something went wrong in the relay' },
  operation_not_enabled: { status: 501, title: 'This operation is not enabled for this bot' },
  upstream_unreachable: { status: 502, title: 'The bot service could not be reached' },
  upstream_key_rejected: { status: 502, title: 'The bot service rejected the relay' },
  upstream_bad_response: {
    status: 502,
    title: 'The answer of the bot service cannot be passed on',
  },
  answer_lost: { status: 502, title: 'The request was sent, but its answer is lost' },
  session_store_unavailable: { status: 503, title: 'Sessions are not available right now' },
  identity_provider_unavailable: { status: 503, title: 'Sign-in is not available right now' },
  busy: { status: 503, title: 'The relay is too busy right now' },
  draining: { status: 503, title: 'The relay is shutting down' },
  upstream_timeout: { status: 504, title: 'The bot service did not answer in time' },

  upstream_stream_broken: { status: 502, title: 'The stream of the bot service broke off' },
  deadline_exceeded: { status: 504, title: 'The answer took longer than allowed' },
  session_ended: { status: 401, title: 'The session has ended' },
  stopped: { status: 409, title: 'The message was stopped before it was sent' },
  reader_too_slow: { status: 408, title: 'The answer was read too slowly' },
} as const satisfies Record<string, { status: number; title: string }>;

export type ProblemCode = keyof typeof PROBLEMS;

/** The codes after which another try can help; nothing has run if the problem does not say `maybeStarted`. */
const WORTH_ANOTHER_TRY: ReadonlySet<ProblemCode> = new Set([
  'request_timeout',
  'rate_limited',
  'too_many_streams',
  'too_many_attempts',
  'upstream_rate_limited',
  'upstream_unreachable',
  'upstream_key_rejected',
  'session_store_unavailable',
  'identity_provider_unavailable',
  'busy',
  'draining',
  'upstream_timeout',
] as const);

export interface ProblemOptions {
  /** Replaces the code's status; for `upstream_refused`. */
  status?: number;
  /** Whole seconds, sent as `Retry-After`. */
  retryAfter?: number;
  /** Response headers that belong to this problem, such as `Allow`. */
  headers?: Record<string, string>;
  /** The bot service's own JSON error body, with secrets masked. */
  upstream?: unknown;
  /** The status of the bot service, if it has answered with neither a stream nor a refusal. */
  upstreamStatus?: number;
  /** The cause: an error, or the error code of the system or a parser. Logged, never sent. */
  cause?: unknown;
  /** Why a stream that broke off was not resumed. Logged, never sent. */
  notResumed?: string;
  /** The log level, if the status does not determine it: `warn` for problems that only the operator can solve. */
  level?: 'warn';
  /** The refused user, if there is no session. Logged, never sent. */
  userId?: string;
  /** At least one byte of the message has left for the bot service, so that it may have run. */
  maybeStarted?: true;
  /** Replaces what the code and `maybeStarted` say. */
  retryable?: Retryable;
}

/** The log fields of a failed request. */
export interface FailureNotes {
  outcome?: string;
  cause?: string;
  /** Why a stream that broke off was not resumed. */
  notResumed?: string;
  level?: 'warn';
  userId?: string | undefined;
}

/** A refusal or failure with a code of the table. Every stage throws it or passes it on. */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly status: number;
  readonly options: ProblemOptions;

  /** `detail` is one or two short sentences for the user; it must name no host and no secret. */
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(detail, options.cause === undefined ? {} : { cause: options.cause });
    this.name = 'Problem';
    this.code = code;
    this.status = options.status ?? PROBLEMS[code].status;
    this.options = options;
  }
}

/**
 * Why something failed, in one word for the log: the cause or the code of a problem, or the name of another error. What
 * was thrown need not be an `Error` of this realm.
 */
export function causeOf(error: unknown): string {
  if (error instanceof Problem) return typeof error.cause === 'string' ? error.cause : error.code;
  const isObject = typeof error === 'object' && error !== null;
  return isObject && 'name' in error && typeof error.name === 'string' ? error.name : 'unknown';
}

/** A copy of a problem, for a message that may have started. */
export function asMaybeStarted({ code, message, status, options }: Problem): Problem {
  return new Problem(code, message, { ...options, status, maybeStarted: true });
}

/**
 * A copy of a refusal, for a message that can be joined. While Redis is away, nobody knows whether an earlier try has run:
 * only the same message is safe to send.
 */
export function asSameMessage(problem: Problem): Problem {
  const { code, message, status, options } = problem;
  if (code !== 'session_store_unavailable') return problem;
  return new Problem(code, message, { ...options, status, retryable: 'same message' });
}

/** What a request fails with: `error` if it is a Problem, else `internal_error`, whose `cause` it is. */
export function asProblem(error: unknown, options: ProblemOptions = {}): Problem {
  if (error instanceof Problem) return error;
  const detail = 'The relay failed. Its log says more about this request id.';
  return new Problem('internal_error', detail, { cause: error, ...options });
}

/** Whether a problem is a fault of the relay, which the log tells with its `cause`. */
export function isFault({ code, cause }: Problem): boolean {
  return code === 'internal_error' || cause instanceof Error;
}

/** The response headers of a problem. */
export function problemHeaders({ options }: Problem): Record<string, string> {
  const { retryAfter, headers } = options;
  return { ...(retryAfter !== undefined && { 'Retry-After': String(retryAfter) }), ...headers };
}

/** Records on the request's locals how it ended, for the log. */
export function recordOutcome(locals: FailureNotes, problem: Problem): void {
  const { notResumed, level, userId } = problem.options;
  locals.outcome = problem.code;
  if (typeof problem.cause === 'string') locals.cause = problem.cause;
  if (notResumed !== undefined) locals.notResumed = notResumed;
  if (level !== undefined) locals.level = level;
  if (userId !== undefined) locals.userId = userId;
}

/**
 * Where the paragraphs about the codes are, as a path from the root of the project. It has no public address: with one,
 * this is an absolute URL (RFC 9457 §3.1.1). Clients know a problem by the code behind the `#`.
 */
const PARAGRAPHS = '/docs/problems.md';

/** The `type` of a problem: a link to the paragraph about its code. */
export function problemType(code: ProblemCode): string {
  return `${PARAGRAPHS}#${code}`;
}

/** The body of an error answer: a problem details document (RFC 9457 §3) with members of the relay's own. */
export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  code: ProblemCode;
  detail: string;
  requestId: string;
  retryable: Retryable;
  maybeStarted?: true;
  upstream?: unknown;
  upstreamStatus?: number;
}

/** The document of a problem, for the answer to the request `requestId`. */
export function problemDocument(problem: Problem, requestId: string): ProblemDocument {
  const { upstream, upstreamStatus, maybeStarted } = problem.options;
  return {
    type: problemType(problem.code),
    title: PROBLEMS[problem.code].title,
    status: problem.status,
    code: problem.code,
    detail: problem.message,
    retryable: retryableOf(problem),
    ...(maybeStarted && { maybeStarted }),
    requestId,
    ...(upstream === undefined ? {} : { upstream }),
    ...(upstreamStatus === undefined ? {} : { upstreamStatus }),
  };
}

function retryableOf({ code, options: { retryable, maybeStarted } }: Problem): Retryable {
  if (retryable !== undefined) return retryable;
  return WORTH_ANOTHER_TRY.has(code) && !maybeStarted ? 'new message' : false;
}
