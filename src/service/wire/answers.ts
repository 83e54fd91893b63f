import type { ServerResponse } from 'node:http';

/** Answers with JSON in the envelope that is seen in the field. */
export function sendData(res: ServerResponse, data: unknown): void {
  res.writeHead(200, { 'Content-Type': 'application/json' });
  res.end(JSON.stringify({ isSuccess: true, data, error: null, errorCode: null }));
}

/** Answers that it is done; there is nothing to say. */
export function sendNothing(res: ServerResponse): void {
  res.writeHead(204);
  res.end();
}

/** Sends the headers of an event stream at once. `traceId` is the id of the run. */
export function beginStream(res: ServerResponse, traceId: string): void {
  res.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Trace-Id': traceId });
  res.flushHeaders();
}

/** The statuses with which the service refuses, by the codes in its answers. */
const STATUSES = {
  INVALID_MESSAGE: 400,
  INVALID_CHANNEL: 400,
  INVALID_FEEDBACK: 400,
  INVALID_FORM: 400,
  INVALID_PATH: 400,
  NO_CONSENT_PENDING: 400,
  BLOB_NOT_FOUND: 400,
  INVALID_API_KEY: 401,
  NOT_FOUND: 404,
  BOT_NOT_FOUND: 404,
  CHANNEL_NOT_FOUND: 404,
  MESSAGE_NOT_FOUND: 404,
  SANDBOX_NOT_FOUND: 404,
  FILE_NOT_FOUND: 404,
  NO_RUN: 404,
  ALREADY_EXISTS: 409,
  NOT_EMPTY: 409,
  TOO_LARGE: 413,
  INVALID_RANGE: 416,
  RATE_LIMITED: 429,
  STORAGE_FULL: 507,
} as const;

export type RefusalCode = keyof typeof STATUSES;

/** Thrown by an operation that the service refuses. */
export class Refusal extends Error {
  readonly code: RefusalCode;

  constructor(code: RefusalCode) {
    super(`The bot service answered ${code}.`);
    this.code = code;
  }
}

/** Answers with a refusal. `headers` are sent besides. */
export function refuse(
  res: ServerResponse,
  { code, message }: Refusal,
  headers: Readonly<Record<string, string>> = {},
): void {
  res.writeHead(STATUSES[code], { 'Content-Type': 'application/json', ...headers });
  res.end(JSON.stringify({ error: { code, message } }));
}
