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
