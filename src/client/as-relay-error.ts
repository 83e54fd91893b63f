import { RelayError } from './relay-error.ts';

/** Whatever was thrown as a RelayError, which has `requestId` if it has none of its own. */
export function asRelayError(thrown: unknown, requestId?: string): RelayError {
  if (thrown instanceof RelayError) {
    const { message, code, status, retryAfter } = thrown;
    if (thrown.requestId !== undefined || requestId === undefined) return thrown;
    return new RelayError(message, { code, status, retryAfter, requestId });
  }
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const error = new RelayError(message, { code: 'unexpected_response', status: 0, requestId });
  error.cause = thrown;
  return error;
}
