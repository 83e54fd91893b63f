import { writeSync } from 'node:fs';

/** Text that leaves in one write, if what is written to takes it whole. */
export interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly lines: number;
}

/** What waits for a reader, in order. */
export interface Backlog {
  readonly pieces: Piece[];
  /** What has not left, in all. */
  bytes: number;
  /** What has not left of the first piece, if a part of it has. */
  rest: Buffer | undefined;
}

export function emptyBacklog(): Backlog {
  return { pieces: [], bytes: 0, rest: undefined };
}

/**
 * Puts `piece` behind the others. Lines that came one by one leave together once they wait, in up to `pieceBytes`
 * bytes: the number of writes is what takes the time.
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
 * @throws the system's error if nothing is taken
 */
export function sendFirst(backlog: Backlog, fd: number): void {
  const { pieces, rest } = backlog;
  const [piece] = pieces;
  if (!piece) return;
  const written = rest ? writeSync(fd, rest) : writeSync(fd, piece.text);
  backlog.bytes -= written;
  const left = rest ?? (written < piece.bytes ? Buffer.from(piece.text) : undefined);
  backlog.rest = left && written < left.length ? left.subarray(written) : undefined;
  if (!backlog.rest) pieces.shift();
}
