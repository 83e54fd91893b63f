import type { ChildProcess, StdioOptions } from 'node:child_process';
import type { Readable } from 'node:stream';
import { boundedOutput } from './bounded-output.ts';

/** Windows needs none of this: the system has no mode that processes share. */
const INHERITED = process.platform === 'win32';
/** Above 2, and above the channel to the primary. */
const LOG_FD = 4;

/** The descriptor at which a worker finds the standard output of its primary, for its log. */
export const workerLogFd = INHERITED ? 1 : LOG_FD;

/**
 * What the primary passes to its workers. A start makes whatever it passes as descriptor 0, 1 or 2 blocking, for all
 * processes that share it (libuv, `uv__process_child_init`), and so does an exit (Node.js, `ResetStdio`). A write of
 * another process may then block for ever. So the log has a higher number, and 1 and 2 are pipes of the worker alone.
 */
export const workerStdio: Extract<StdioOptions, unknown[]> = INHERITED
  ? ['inherit', 'inherit', 'inherit', 'ipc']
  : ['ignore', 'pipe', 'pipe', 'ipc', 1];

/** How many bytes of workers may wait for a reader that stalls. */
const MAX_WAITING_BYTES = 1024 * 1024;
const PIECE_BYTES = 4096;

/** Returns a function that passes on what a worker prints, other than its log, to standard error of this process. */
export function printsOfWorkers(): (worker: ChildProcess) => void {
  const output = boundedOutput({
    fd: 2,
    pieceBytes: PIECE_BYTES,
    maxBytes: MAX_WAITING_BYTES,
    onDropped() {},
  });
  process.on('exit', output.end);
  const pass = (stream: Readable | null) =>
    stream
      ?.setEncoding('utf8')
      .on('data', (text: string) => output.write({ text, bytes: Buffer.byteLength(text), lines: 1 }));
  return ({ stdout, stderr }) => {
    pass(stdout);
    pass(stderr);
  };
}
