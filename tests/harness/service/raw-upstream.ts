import { createServer, type Socket } from 'node:net';
import { until } from '../clock/until.ts';

/** A request as it crossed the wire. */
export interface RawRequest {
  readonly requestLine: string;
  /** Header names and values in their order and case. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  /** The values of one header, whatever its case. */
  all(name: string): string[];
}

export interface RawUpstream {
  readonly url: string;
  readonly port: number;
  /** Requests that arrived whole, in order. */
  readonly requests: RawRequest[];
  /** Every connection that was ever opened. */
  readonly sockets: Socket[];
  /** Resolves with the next request that arrives whole. */
  nextRequest(): Promise<RawRequest>;
  close(): Promise<void>;
}

/** The head of an event stream whose body is sent in chunks. */
export const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
/** The head of an event stream that ends with its connection. */
export const CLOSE_DELIMITED_HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n';
export const LAST_CHUNK = '0\r\n\r\n';

/** `data` as one chunk of a chunked body. */
export function chunk(data: string | Buffer): Buffer {
  const bytes = Buffer.from(data as string);
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
}

/** An event with this data as JSON, and with an id if one is given. */
export function jsonEvent(data: unknown, id?: number): string {
  return `${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
}

/** An event stream that is answered at once: its head, each of `events` as one chunk, and its end. */
export function wholeStream(...events: string[]): Buffer {
  return Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk), Buffer.from(LAST_CHUNK)]);
}

/**
 * Starts a bot service of bare TCP on a free port, which can misbehave in every way: `onRequest` gets each whole
 * request and its socket, to which it can write any bytes.
 */
export async function startRawUpstream(
  onRequest: (socket: Socket, request: RawRequest) => void,
): Promise<RawUpstream> {
  const requests: RawRequest[] = [];
  const sockets: Socket[] = [];
  const waiting: ((request: RawRequest) => void)[] = [];
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.push(socket);
    let received: Buffer[] = [];
    let size = 0;
    let missing: Missing = { needed: 0, isChunked: false };
    let newest = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (data) => {
      received.push(data);
      size += data.length;
      newest = Buffer.concat([newest.subarray(1 - LAST_CHUNK.length), data]);
      // A large body is put together once.
      if (size < missing.needed || (missing.isChunked && !newest.includes(LAST_CHUNK))) return;
      let bytes = Buffer.concat(received);
      let parsed = parse(bytes);
      for (; 'request' in parsed; parsed = parse(bytes)) {
        bytes = bytes.subarray(parsed.length);
        requests.push(parsed.request);
        waiting.shift()?.(parsed.request);
        onRequest(socket, parsed.request);
      }
      received = [bytes];
      size = bytes.length;
      missing = parsed;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    requests,
    sockets,
    nextRequest: () => new Promise((resolve) => waiting.push(resolve)),
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

/** What a request lacks that is not whole: how many bytes it has at least, and whether it ends with a last chunk. */
interface Missing {
  readonly needed: number;
  readonly isChunked: boolean;
}

/** The first whole request in `bytes`, or what it lacks. */
function parse(bytes: Buffer): { request: RawRequest; length: number } | Missing {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return { needed: bytes.length + 1, isChunked: false };
  const [requestLine = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const headers = lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 1).trim()] as const;
  });
  const all = (name: string) =>
    headers.filter(([header]) => header.toLowerCase() === name.toLowerCase()).map(([, value]) => value);
  const from = headEnd + 4;
  const isChunked = all('transfer-encoding')[0] === 'chunked';
  const found = isChunked
    ? chunkedBody(bytes, from)
    : { body: bytes.subarray(from), to: from + Number(all('content-length')[0] ?? 0) };
  if (!found || bytes.length < found.to) return { needed: found?.to ?? bytes.length + 1, isChunked };
  const body = found.body.subarray(0, found.to - from);
  return { request: { requestLine, headers, all, body }, length: found.to };
}

/** The chunks from `from` on, without extensions and trailers, and where the last one ends; undefined if it is missing. */
function chunkedBody(bytes: Buffer, from: number): { body: Buffer; to: number } | undefined {
  const chunks: Buffer[] = [];
  for (let at = from; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16);
    const end = lineEnd + 2 + size;
    if (bytes.length < end + 2) return undefined;
    if (size === 0) return { body: Buffer.concat(chunks), to: end + 2 };
    chunks.push(bytes.subarray(lineEnd + 2, end));
    at = end + 2;
  }
}

/** A whole response with `Content-Length`, as a raw upstream writes it. */
export function plainAnswer(statusLine: string, headers: readonly string[], body = ''): string {
  const head = [`HTTP/1.1 ${statusLine}`, ...headers, `Content-Length: ${Buffer.byteLength(body)}`];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** Resolves when `socket` still has bytes to send and could send none for many turns of the event loop. */
export async function stalls(socket: Socket): Promise<void> {
  let turns = 0;
  let left = 0;
  await until(() => {
    turns = left > 0 && socket.writableLength === left ? turns + 1 : 0;
    left = socket.writableLength;
    return turns === 20;
  });
}
