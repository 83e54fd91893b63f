import { RelayError } from './relay-error.ts';

/** Whatever was thrown as a RelayError, with `requestId` if it has none; what it was is its `cause`. */
export function asRelayError(thrown: unknown, requestId?: string): RelayError {
  const isOurs = thrown instanceof RelayError;
  if (isOurs && (thrown.requestId !== undefined || requestId === undefined)) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const { code, status, retryAfter } = isOurs
    ? thrown
    : { code: 'unexpected_response', status: 0, retryAfter: undefined };
  const error = new RelayError(message, { code, status, retryAfter, requestId });
  error.cause = thrown;
  return error;
}
