import type { ServerResponse } from 'node:http';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';

/** Headers that every stream goes down with: nobody between here and the page may hold, change or keep it. */
const STREAM_HEADERS = new Map([
  ['Cache-Control', 'no-cache, no-transform'],
  ['X-Accel-Buffering', 'no'],
]);

/**
 * Sends the headers of a stream at once: the client knows that its message runs, long before the first byte of the
 * answer. At once is at the end of this turn of the event loop: what has come with the headers of the service leaves
 * with these. A header of the service in which `mask` finds a secret is left out.
 */
export function beginStream(
  res: ServerResponse,
  { headers }: UpstreamAnswer,
  mask: (text: string) => string,
): void {
  const harmless = (value: string | undefined) => (value && mask(value) === value ? value : undefined);
  res.statusCode = 200;
  res.setHeaders(STREAM_HEADERS);
  res.setHeader('Content-Type', harmless(headers['content-type']) ?? 'text/event-stream');
  const trace = harmless(headers['x-trace-id']);
  if (trace !== undefined) res.setHeader('X-Trace-Id', trace);
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}
