import type { ServerResponse } from 'node:http';
import type { UpstreamAnswer } from '../upstream/answer-arrival.ts';

/** Headers of every stream: no proxy on the way to the page may buffer, change or store it. */
export const STREAM_HEADERS = new Map([
  ['Cache-Control', 'no-cache, no-transform'],
  ['X-Accel-Buffering', 'no'],
]);

const EVENT_STREAM = 'text/event-stream';
/** The headers of most streams, made once. */
const PLAIN_HEAD: ReadonlyMap<string, string> = new Map([...STREAM_HEADERS, ['Content-Type', EVENT_STREAM]]);

/** The headers with which a stream begins. A header of the service in which `mask` finds a secret is left out. */
export function streamHead(
  { headers }: Pick<UpstreamAnswer, 'headers'>,
  mask: (text: string) => string,
): ReadonlyMap<string, string> {
  const harmless = (value: string | undefined) => (value && mask(value) === value ? value : undefined);
  const type = headers['content-type'];
  const trace = harmless(headers['x-trace-id']);
  if (type === EVENT_STREAM && trace === undefined) return PLAIN_HEAD;
  const head = new Map(PLAIN_HEAD);
  if (type !== EVENT_STREAM) head.set('Content-Type', harmless(type) ?? EVENT_STREAM);
  if (trace !== undefined) head.set('X-Trace-Id', trace);
  return head;
}

/**
 * Sends the headers of a stream at once, so that the client learns that its message runs before the first byte of the
 * answer comes. They are written at the end of this turn of the event loop, together with data that arrived with the
 * headers of the service.
 */
export function beginStream(res: ServerResponse, head: ReadonlyMap<string, string>): void {
  res.statusCode = 200;
  head.forEach((value, name) => void res.setHeader(name, value));
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}
