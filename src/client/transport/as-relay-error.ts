import { RelayError } from './relay-error.ts';

/** Turns a thrown value into a RelayError, whose `cause` it is. A RelayError without a request id gets `requestId`. */
export function asRelayError(thrown: unknown, requestId?: string): RelayError {
  const isOurs = thrown instanceof RelayError;
  if (isOurs && (thrown.requestId !== undefined || requestId === undefined)) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const fields = isOurs ? { ...thrown, requestId } : { code: 'unexpected_response', status: 0, requestId };
  const error = new RelayError(message, fields);
  error.cause = thrown;
  return error;
}
