import { createServer, type Socket } from 'node:net';

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

/** An event stream that is answered at once: its head, each of `events` as one chunk, and its end. */
export function wholeStream(...events: string[]): Buffer {
  return Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk), Buffer.from(LAST_CHUNK)]);
}

/**
 * A bot service of bare TCP on a free port, which can misbehave in every way: `onRequest` gets each request
 * that arrived whole, and the socket to write whatever bytes it likes to.
 */
export async function startRawUpstream(
  onRequest: (socket: Socket, request: RawRequest) => void,
): Promise<RawUpstream> {
  const requests: RawRequest[] = [];
  const sockets: Socket[] = [];
  const waiting: ((request: RawRequest) => void)[] = [];
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.push(socket);
    let received = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (data) => {
      received = Buffer.concat([received, data]);
      for (let parsed = parse(received); parsed; parsed = parse(received)) {
        received = received.subarray(parsed.length);
        requests.push(parsed.request);
        waiting.shift()?.(parsed.request);
        onRequest(socket, parsed.request);
      }
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

/** The first whole request of `bytes`, if there is one; bodies only with Content-Length, as the relay sends them. */
function parse(bytes: Buffer): { request: RawRequest; length: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const [requestLine = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const headers = lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 1).trim()] as const;
  });
  const all = (name: string) =>
    headers.filter(([header]) => header.toLowerCase() === name.toLowerCase()).map(([, value]) => value);
  const length = headEnd + 4 + Number(all('content-length')[0] ?? 0);
  if (bytes.length < length) return undefined;
  return { request: { requestLine, headers, all, body: bytes.subarray(headEnd + 4, length) }, length };
}
