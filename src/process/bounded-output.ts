import { writeSync } from 'node:fs';
import { nonBlocking } from './non-blocking.ts';

/** How long to leave a reader alone that takes no more, in ms. */
const RETRY_MS = 20;
/** Pieces that leave in a row at most, so that a long backlog delays nothing else. */
const PIECES_IN_A_ROW = 64;
/** At an exit: a reader that takes nothing for so long counts as stalled, in ms. A primary waits after its workers. */
const STALLED_MS = 400;
/** What an exit waits in all for a reader that goes on reading, in ms. */
const LONGEST_END_MS = 2_000;
/** How often such a reader is tried, in ms. */
const END_RETRY_MS = 5;
/** The space that must be free before a loss ends, in bytes, so that the line that tells of it is not lost. */
const ROOM_BYTES = 16_384;

/** Text that leaves in one write, if what is written to takes it whole. */
export interface Piece {
  readonly text: string;
  readonly bytes: number;
  readonly lines: number;
}

export interface BoundedOutputOptions {
  readonly fd: number;
  /** What waits leaves in pieces of so many bytes at most, save for one that came longer. */
  readonly pieceBytes: number;
  /** What may wait for a reader; what comes beyond is dropped. */
  readonly maxBytes: number;
  /** Told how many lines were dropped since the last time, as soon as others leave again. */
  readonly onDropped: (lines: number) => void;
}

export interface BoundedOutput {
  write(piece: Piece): void;
  /** Has what waits leave, as far as the reader takes it: without progress for 0.4 s or after 2 s the rest is lost. */
  end(): void;
  /** Lines dropped so far. */
  dropped(): number;
}

/**
 * Writes to `fd` at once and in order, and never waits for a reader: what it does not take is kept in memory, up to a
 * bound. An error such as a full disk or a reader that is gone is a reader that takes nothing.
 */
export function boundedOutput({ fd, pieceBytes, maxBytes, onDropped }: BoundedOutputOptions): BoundedOutput {
  const output = nonBlocking(fd);
  const queue: Piece[] = [];
  let queuedBytes = 0;
  /** What has not left of the first piece, if a part of it has. */
  let rest: Buffer | undefined;
  let dropped = 0;
  let untold = 0;
  let retry: NodeJS.Timeout | undefined;

  /** Writes what is left of the first piece. @throws the system's error if nothing is taken */
  function sendFirst(piece: Piece): void {
    const written = rest ? writeSync(output.fd, rest) : writeSync(output.fd, piece.text);
    queuedBytes -= written;
    const left = rest ?? (written < piece.bytes ? Buffer.from(piece.text) : undefined);
    rest = left && written < left.length ? left.subarray(written) : undefined;
    if (!rest) queue.shift();
  }

  function send(): void {
    const before = queuedBytes;
    const hasStalled = retry !== undefined;
    clearTimeout(retry);
    retry = undefined;
    try {
      output.ready(hasStalled);
      for (let n = 0; n < PIECES_IN_A_ROW && queue[0]; n++) sendFirst(queue[0]);
    } catch {
      // It waits.
    }
    if (queue.length > 0) retry = setTimeout(send, RETRY_MS).unref();
    if (queuedBytes < before) tellDropped();
  }

  /** Lines that came one by one leave together once they wait: the number of writes is what takes the time. */
  function enqueue(piece: Piece): void {
    const last = queue.at(-1);
    const hasBegun = queue.length === 1 && rest !== undefined;
    if (last && !hasBegun && last.bytes + piece.bytes <= pieceBytes) {
      queue[queue.length - 1] = {
        text: last.text + piece.text,
        bytes: last.bytes + piece.bytes,
        lines: last.lines + piece.lines,
      };
    } else {
      queue.push(piece);
    }
    queuedBytes += piece.bytes;
  }

  function tellDropped(): void {
    if (untold === 0 || queuedBytes + ROOM_BYTES > maxBytes) return;
    const lines = untold;
    untold = 0;
    onDropped(lines);
  }

  return {
    write(piece) {
      tellDropped();
      // What comes behind a loss waits for it to be told.
      if (untold > 0 || queuedBytes + piece.bytes > maxBytes) {
        dropped += piece.lines;
        untold += piece.lines;
        return;
      }
      enqueue(piece);
      if (!retry) send();
    },
    end() {
      const clock = new Int32Array(new SharedArrayBuffer(4));
      const begun = performance.now();
      let lastProgress = begun;
      for (let now = begun; queue.length > 0; now = performance.now()) {
        const before = queuedBytes;
        send();
        if (queuedBytes < before) lastProgress = now;
        else if (now - lastProgress > STALLED_MS) break;
        if (now - begun > LONGEST_END_MS) break;
        if (queue.length > 0) Atomics.wait(clock, 0, 0, END_RETRY_MS);
      }
    },
    dropped: () => dropped,
  };
}
