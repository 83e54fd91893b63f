import type { ServerResponse } from 'node:http';

/** Up to here, in bytes, copying what is written costs less than handing it over in pieces. */
const COPIED_BYTES = 4096;
const CR = 0x0d;
const LF = 0x0a;

/** The way of a stream's bytes to the client. */
export interface StreamWriter {
  /** Takes the next bytes; they leave at the end of this turn of the event loop's queue. */
  write(chunk: Buffer): void;
  /** Lets what was taken leave now: before anything else is written to the response. */
  flush(): void;
}

/**
 * Writes a stream to `res`, whose headers are sent; what came together leaves together. Calls `onFull` when the
 * client reads more slowly than it is written to: `res` says `drain` when there is room again.
 * Each chunk of up to 4 KiB goes to the socket in one buffer with its frame (RFC 9112 §7.1): `res.write` would make
 * four writes of it, which cost more than the event itself.
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
      // One without bytes would be the end of the body.
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

/** Whether there is room for more; undefined if this is no way for these chunks. */
function writeFramed(res: ServerResponse, chunks: readonly Buffer[]): boolean | undefined {
  const { socket } = res;
  if (!res.chunkedEncoding || !socket?.writable) return undefined;
  let length = 0;
  for (const chunk of chunks) length += framedLength(chunk.length);
  if (length > COPIED_BYTES) return undefined;
  const framed = Buffer.allocUnsafe(length);
  let at = 0;
  for (const chunk of chunks) at = frame(chunk, framed, at);
  // An empty write lets the response know of the wait: only then it says when that is over.
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

/** Writes `chunk` in its frame into `target`; returns the offset behind it. */
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
