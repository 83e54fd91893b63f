import { connect, type Socket } from 'node:net';

/** What arrived on one read of the socket, and when (`performance.now()`, ms). */
export interface Read {
  readonly bytes: Buffer;
  readonly at: number;
}

export interface RawClient {
  readonly socket: Socket;
  readonly reads: Read[];
  /** Everything received so far, as latin1. */
  text(): string;
  /** Resolves once `part` has arrived; rejects if the connection closes before. */
  waitFor(part: string): Promise<void>;
  /** Resolves when the connection is over; `error` is the code if it was reset. */
  closed: Promise<{ error: string | undefined }>;
}

/** Opens a bare TCP connection to `port` and writes `bytes` to it. */
export function rawClient(port: number, bytes: string | Buffer, { allowHalfOpen = false } = {}): RawClient {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen, noDelay: true });
  const reads: Read[] = [];
  let error: string | undefined;
  socket.on('data', (data) => reads.push({ bytes: data, at: performance.now() }));
  socket.on('error', (failure: NodeJS.ErrnoException) => {
    error = failure.code;
  });
  socket.write(bytes);
  const text = () => Buffer.concat(reads.map((read) => read.bytes)).toString('latin1');
  return {
    socket,
    reads,
    text,
    waitFor: (part) =>
      new Promise((resolve, reject) => {
        const isThere = finder(reads, part);
        const check = () => {
          if (!isThere()) return;
          socket.off('data', check);
          socket.off('close', fail);
          resolve();
        };
        const fail = () => reject(new Error(`closed before "${part}" came; came: ${text()}`));
        socket.on('data', check);
        socket.on('close', fail);
        check();
      }),
    closed: new Promise((resolve) => {
      socket.on('close', () => resolve({ error }));
    }),
  };
}

/** Says whether `part` is in what was read so far. It searches each byte once, and a part across two reads too. */
function finder(reads: readonly Read[], part: string): () => boolean {
  const wanted = Buffer.from(part, 'latin1');
  let searched = 0;
  let tail = Buffer.alloc(0);
  let isFound = false;
  return () => {
    for (; !isFound && searched < reads.length; searched += 1) {
      const bytes = Buffer.concat([tail, (reads[searched] as Read).bytes]);
      isFound = bytes.includes(wanted);
      tail = bytes.subarray(Math.max(0, bytes.length - wanted.length + 1));
    }
    return isFound;
  };
}

/** The text of a message request, with `headers` added; ready for `rawClient`. */
export function rawMessage({
  path = '/generic/ns/acme/bot-provider/helper/message/sse',
  cookie = '',
  headers = [] as string[],
  body = '{"text":"hi"}',
  version = '1.1',
}): string {
  const head = [
    `POST ${path} HTTP/${version}`,
    'Host: app.example.com',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...(cookie ? [`Cookie: ${cookie}`] : []),
    ...headers,
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** The body of a raw response with chunked encoding undone; `complete` says whether its last chunk came. */
export function dechunk(response: string): { head: string; body: string; complete: boolean } {
  const headEnd = response.indexOf('\r\n\r\n');
  const head = response.slice(0, headEnd);
  let body = '';
  let at = headEnd + 4;
  for (;;) {
    const lineEnd = response.indexOf('\r\n', at);
    // Without a whole head, there are no chunks.
    if (lineEnd < 0 || headEnd < 0) return { head, body, complete: false };
    const length = Number.parseInt(response.slice(at, lineEnd), 16);
    if (length === 0) return { head, body, complete: true };
    body += response.slice(lineEnd + 2, lineEnd + 2 + length);
    at = lineEnd + 2 + length + 2;
  }
}
