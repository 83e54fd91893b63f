import type { ServerResponse } from 'node:http';

/** Sends the headers of an event stream at once. `traceId` is the id of the run. */
export function beginStream(res: ServerResponse, traceId: string): void {
  res.writeHead(200, { 'Content-Type': 'text/event-stream', 'X-Trace-Id': traceId });
  res.flushHeaders();
}
