/** What the client itself says where no problem of the relay came. */
export type ClientErrorCode =
  /** The relay, or what stands before it, could not be reached. Nobody knows whether the message ran. */
  | 'unreachable'
  /** The answer broke off. */
  | 'connection_lost'
  /** Nothing came for longer than the relay lets a stream be silent. */
  | 'connection_silent'
  /** Something on the way answered that is not the relay. */
  | 'unexpected_response';

export interface RelayErrorFields extends ErrorOptions {
  /** A code of the relay's table of errors, or one of the client's own. */
  readonly code: ClientErrorCode | (string & {});
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** Whole seconds after which another try is worth it, if the relay has said so. */
  readonly retryAfter?: number | undefined;
  /** Finds the request in the relay's log. */
  readonly requestId?: string | undefined;
}

/** Why a call or a message failed; `message` is one sentence to show. */
export class RelayError extends Error implements RelayErrorFields {
  declare readonly code: RelayErrorFields['code'];
  declare readonly status: number;
  declare readonly retryAfter: number | undefined;
  declare readonly requestId: string | undefined;

  constructor(message: string, fields: RelayErrorFields) {
    super(message, fields);
    const { code, status, retryAfter, requestId } = fields;
    Object.assign(this, { name: 'RelayError', code, status, retryAfter, requestId });
  }
}

/** The error of an answer that is not what was asked for: its problem document (RFC 9457), if `body` is one. */
export function errorOf({ status, headers }: Response, body: unknown): RelayError {
  const { detail, code } = asProblem(body) ?? {
    detail: `The server answered ${status}.`,
    code: 'unexpected_response',
  };
  return new RelayError(detail, {
    code,
    status,
    retryAfter: Number(headers.get('Retry-After')) || undefined,
    requestId: headers.get('X-Request-Id') ?? undefined,
  });
}

/** The error that a stream ends with (`event: error`); undefined for an event of the bot. */
export function errorOfEvent({ event, data }: { event: string; data: unknown }): RelayError | undefined {
  const problem = event === 'error' && asProblem(data);
  return problem ? new RelayError(problem.detail, problem) : undefined;
}

interface Problem {
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
}

function asProblem(data: unknown): Problem | undefined {
  const problem = data as (Problem & { readonly type?: unknown }) | null | undefined;
  return problem?.type === 'about:blank' && problem.code ? problem : undefined;
}
