import type { ServerResponse } from 'node:http';

/** Up to this size, in bytes, copying chunks into one buffer costs less than writing them one by one. */
const COPIED_BYTES = 4096;
const CR = 0x0d;
const LF = 0x0a;

/** Writes a stream to the client. */
export interface StreamWriter {
  /** Takes the next bytes; they are sent at the next tick. */
  write(chunk: Buffer): void;
  /** Sends the taken bytes now. Call it before anything else is written to the response. */
  flush(): void;
}

/**
 * Writes a stream to `res`, whose headers are sent; chunks that arrive together leave together. Calls `onFull` when the
 * client reads more slowly than the stream arrives; `res` emits `drain` when there is room again.
 * Small chunks go to the socket in one buffer with their framing (RFC 9112 §7.1): `res.write` would make four writes of
 * each chunk, which cost more than the event itself.
 */
export function streamWriter(res: ServerResponse, onFull: () => void): StreamWriter {
  let held: Buffer[] | undefined;

  function flush(): void {
    const chunks = held;
    held = undefined;
    if (chunks === undefined || res.destroyed) return;
    const hasRoom = writeFramed(res, chunks) ?? writeEach(res, chunks);
    if (!hasRoom) onFull();
  }

  return {
    write(chunk) {
      // An empty chunk would end the body.
      if (chunk.length === 0) return;
      if (held) held.push(chunk);
      else {
        held = [chunk];
        process.nextTick(flush);
      }
    },
    flush,
  };
}

/** Writes the chunks in one buffer. Returns whether there is room for more; undefined if they cannot be written so. */
function writeFramed(res: ServerResponse, chunks: readonly Buffer[]): boolean | undefined {
  const { socket } = res;
  if (!res.chunkedEncoding || !socket?.writable) return undefined;
  let length = 0;
  for (const chunk of chunks) length += framedLength(chunk.length);
  if (length > COPIED_BYTES) return undefined;
  const framed = Buffer.allocUnsafe(length);
  let at = 0;
  for (const chunk of chunks) at = frame(chunk, framed, at);
  // After an empty write, the response knows that the socket is full, and emits `drain` later.
  return socket.write(framed) || res.write('');
}

function writeEach(res: ServerResponse, chunks: readonly Buffer[]): boolean {
  let hasRoom = true;
  for (const chunk of chunks) hasRoom = res.write(chunk);
  return hasRoom;
}

function framedLength(length: number): number {
  return length.toString(16).length + length + 4;
}

/** Writes `chunk` with its framing into `target`; returns the offset after it. */
function frame(chunk: Buffer, target: Buffer, start: number): number {
  let at = start + target.write(chunk.length.toString(16), start, 'latin1');
  target[at++] = CR;
  target[at++] = LF;
  target.set(chunk, at);
  at += chunk.length;
  target[at++] = CR;
  target[at++] = LF;
  return at;
}
