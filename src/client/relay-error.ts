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

export interface RelayErrorFields {
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
  readonly code: RelayErrorFields['code'];
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;

  constructor(message: string, { code, status, retryAfter, requestId }: RelayErrorFields) {
    super(message);
    this.name = 'RelayError';
    this.code = code;
    this.status = status;
    this.retryAfter = retryAfter;
    this.requestId = requestId;
  }
}

/** The error of an answer that is not 2xx: its problem document (RFC 9457), if it holds one. */
export async function errorOf(response: Response): Promise<RelayError> {
  const { status, headers } = response;
  const retryAfter = Number(headers.get('Retry-After') ?? Number.NaN);
  const common = {
    status,
    retryAfter: retryAfter >= 0 ? retryAfter : undefined,
    requestId: headers.get('X-Request-Id') ?? undefined,
  };
  const problem = asProblem(await response.json().catch(() => undefined));
  if (problem) return new RelayError(problem.detail, { ...common, code: problem.code });
  return new RelayError(`The server answered ${status}.`, { ...common, code: 'unexpected_response' });
}

/** The error that a stream ends with (`event: error`); undefined for an event of the bot. */
export function errorOfEvent(event: string, data: unknown): RelayError | undefined {
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
  return problem?.type === 'about:blank' && typeof problem.code === 'string' ? problem : undefined;
}
