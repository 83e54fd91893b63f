import { writeSync } from 'node:fs';

/** Text that is written in one call, if the reader takes all of it. */
export interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly lines: number;
}

/** Text that waits to be written, in order. */
export interface Backlog {
  readonly pieces: Piece[];
  /** How many bytes are not written yet, over all pieces. */
  bytes: number;
  /** What is left of the first piece, if a part of it was written. */
  rest: Buffer | undefined;
}

/** Makes a backlog in which nothing waits. */
export function emptyBacklog(): Backlog {
  return { pieces: [], bytes: 0, rest: undefined };
}

/**
 * Appends `piece`. Pieces that wait are joined to pieces of at most `pieceBytes` bytes, since each write takes time,
 * whatever its length.
 */
export function enqueue(backlog: Backlog, piece: Piece, pieceBytes: number): void {
  const { pieces, rest } = backlog;
  const last = pieces.at(-1);
  const hasBegun = pieces.length === 1 && rest !== undefined;
  if (last && !hasBegun && last.bytes + piece.bytes <= pieceBytes) {
    pieces[pieces.length - 1] = {
      text: last.text + piece.text,
      bytes: last.bytes + piece.bytes,
      lines: last.lines + piece.lines,
    };
  } else {
    pieces.push(piece);
  }
  backlog.bytes += piece.bytes;
}

/**
 * Writes what is left of the first piece, if there is one, to the descriptor `fd`.
 * @throws the system's error if nothing could be written
 */
export function writeFirst(backlog: Backlog, fd: number): void {
  const { pieces, rest } = backlog;
  const [piece] = pieces;
  if (!piece) return;
  const written = rest ? writeSync(fd, rest) : writeSync(fd, piece.text);
  backlog.bytes -= written;
  const left = rest ?? (written < piece.bytes ? Buffer.from(piece.text) : undefined);
  backlog.rest = left && written < left.length ? left.subarray(written) : undefined;
  if (!backlog.rest) pieces.shift();
}
