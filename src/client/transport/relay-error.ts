/** The client's own error codes, for failures without a problem from the relay. */
export type ClientErrorCode =
  /**
   * The relay, or a proxy before it, could not be reached. With status 0 it is unknown whether the message has run. With
   * 503 a load balancer has passed the request on to no relay.
   */
  | 'unreachable'
  /** The answer broke off. */
  | 'connection_lost'
  /** No byte has arrived for `silenceMs`, not even a heartbeat. */
  | 'connection_silent'
  /** The bot service itself answers 404: there is no such conversation, message or file. */
  | 'missing'
  /** The relay has signed the user in, but the browser does not keep its cookie. */
  | 'cookie_blocked'
  /** The answer is not one of the relay's: a proxy may have sent it. */
  | 'unexpected_response';

/**
 * What the relay says of another try. `false`: do not, since the bot may have run, or the answer would be the same.
 * `new message`: the bot has not run. `same message`: this request has not made it run, and the same message, sent again,
 * gets the run of an earlier one.
 */
export type Retryable = false | 'new message' | 'same message';

/** The message of `unreachable`. */
export const UNREACHABLE = 'The server is unreachable.';

/** The hints that were written to the console. */
const hints = new Set<string>();

/** Why a call or a message failed. `message` is one sentence that a page can show. */
export class RelayError extends Error {
  /** A code of the relay's table of errors, or one of the client's own. */
  declare readonly code: ClientErrorCode | (string & {});
  /** The HTTP status; 0 if there was no answer. */
  declare readonly status: number;
  /** In how many seconds to try again, if the relay has said so. */
  declare readonly retryAfter: number | undefined;
  /** The request's id in the relay's log. */
  declare readonly requestId: string | undefined;
  /** Whether another try makes sense, if the relay has said so. */
  declare readonly retryable: Retryable | undefined;
  /** True if the bot may run, or the operation may have been done. */
  declare readonly maybeStarted: boolean | undefined;
  /** What may be wrong with the set-up: for developers, not for users. */
  declare readonly hint: string | undefined;
  /** The JSON with which the bot service refused, for `upstream_refused`. */
  declare readonly upstream: unknown;
  /** For developers: the status of the bot service, if it has answered with neither a stream nor a refusal. */
  declare readonly upstreamStatus: number | undefined;

  /** Its `fields` become its members. */
  constructor(
    message: string,
    fields: Pick<RelayError, 'code' | 'status'> &
      Partial<
        Pick<
          RelayError,
          | 'retryAfter'
          | 'requestId'
          | 'retryable'
          | 'maybeStarted'
          | 'hint'
          | 'upstream'
          | 'upstreamStatus'
          | 'cause'
        >
      >,
  ) {
    super(message, fields);
    const { code, status, requestId, retryAfter, retryable, maybeStarted, hint } = fields;
    const { upstream, upstreamStatus } = fields;
    const named = { code, status, requestId, retryAfter, retryable, maybeStarted, hint };
    Object.assign(this, { name: 'RelayError', ...named, upstream, upstreamStatus });
    if (hint) giveHint(this, hint);
  }
}

/** Gives an error its hint, which is written to the console once. */
export function giveHint(error: RelayError, hint: string): void {
  Object.assign(error, { hint });
  if (!hints.has(hint)) console.warn(hint);
  hints.add(hint);
}

/**
 * The error of an unexpected answer: the problem in `body` if that is one. `unsent` is the `retryable` of the error if a
 * load balancer has passed the request on to no relay.
 */
export function errorOf({ status, headers, url }: Response, body: unknown, unsent?: Retryable): RelayError {
  const isHtml = /html/i.test(`${headers.get('Content-Type')}`);
  // A page, or a 404 without JSON, comes from another server. A proxy whose relay is away answers 5xx.
  const isOther = (isHtml && status < 300) || (status === 404 && !body);
  // The response to an upload has no `url`.
  const answered = `The server answered${url && ` ${url.split('?')[0]}`} with ${status}${isHtml ? ' and HTML' : ''}.`;
  const isAway = status === 503;
  const problem = asProblem(body as MaybeProblem) ?? {
    detail: isAway ? UNREACHABLE : answered,
    retryable: isAway ? unsent : undefined,
    hint: isOther
      ? `${answered} It is not the relay: add /auth, /client and /generic to its proxy.`
      : undefined,
    // The relay passes on a 404 of the bot service if it is JSON. Pages of proxies are not.
    code: isAway ? 'unreachable' : status === 404 && body ? 'missing' : 'unexpected_response',
  };
  return new RelayError(problem.detail, {
    ...problem,
    status,
    retryAfter: Number(headers.get('Retry-After')) || undefined,
    requestId: headers.get('X-Request-Id') ?? undefined,
  });
}

/**
 * The error in the last event of a stream (`event: error`); undefined for an event of the bot. The relay has
 * tried to go on with the stream, so the error is final unless it says otherwise.
 */
export function errorOfEvent(event: string, data: unknown): RelayError | undefined {
  const problem = event === 'error' && asProblem(data as MaybeProblem);
  return problem ? new RelayError(problem.detail, { retryable: false, ...problem }) : undefined;
}

/** A problem of the relay (RFC 9457). */
interface Problem {
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
  readonly retryable?: Retryable;
  readonly retryAfter?: number;
  readonly maybeStarted?: boolean;
  readonly upstream?: unknown;
  readonly upstreamStatus?: number;
}

type MaybeProblem = (Problem & { readonly type?: unknown }) | null | undefined;

/** Its `type` is a link to the paragraph about its code, wherever the relay's documents are. */
function asProblem(problem: MaybeProblem): Problem | undefined {
  return problem?.code && `${problem.type}`.endsWith(`#${problem.code}`) ? problem : undefined;
}

/** The error of a call whose session is over: nobody is signed in, or another user. */
export function signedOut(): RelayError {
  return new RelayError('Signed out.', { code: 'session_ended', status: 401 });
}

/** Whether the error says that there is no session any more. */
export function isSignedOut(error: unknown): boolean {
  return error instanceof RelayError && ['unauthenticated', 'session_ended'].includes(error.code);
}

/** Whether the relay has not enabled the group of this operation, such as `chat`. */
export function isNotEnabled(error: unknown): boolean {
  return error instanceof RelayError && error.code === 'operation_not_enabled';
}

/**
 * Whether another try may get an answer: the connection failed, or the failure is a temporary one. `retryable` does not
 * count, since it is about sending a message again. After the deadline of a message, no try helps.
 */
export function isTemporary(error: unknown): error is RelayError {
  return (
    error instanceof RelayError &&
    error.code !== 'deadline_exceeded' &&
    (error.status === 0 || error.status === 429 || error.status > 500)
  );
}

/**
 * Turns a thrown value into a RelayError with the value as its `cause`. A RelayError stays as it is, unless it lacks the
 * request id: then there is a new one with `requestId`.
 */
export function asRelayError(thrown: unknown, requestId?: string): RelayError {
  const isOurs = thrown instanceof RelayError;
  if (isOurs && (thrown.requestId !== undefined || requestId === undefined)) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const fields = isOurs ? { ...thrown, requestId } : { code: 'unexpected_response', status: 0, requestId };
  const error = new RelayError(message, fields);
  error.cause = thrown;
  return error;
}

/** Undefined in Node.js. */
declare const reportError: ((error: unknown) => void) | undefined;

/** Calls a function of the page. An error of it is reported as an uncaught error of the page, and is not thrown here. */
export function callPage(call: () => unknown): void {
  try {
    call();
  } catch (error) {
    if (typeof reportError === 'function') reportError(error);
    else console.error(error);
  }
}
