import { constants, fstatSync, openSync } from 'node:fs';
import { Socket } from 'node:net';

/** How often at least a shared socket is made non-blocking again while it is written to, in ms. */
const AGAIN_MS = 100;

/** Where to write without waiting for whoever reads. */
export interface NonBlocking {
  readonly fd: number;
  /** To be called before writing; `hasStalled` if the last write failed. */
  ready(hasStalled: boolean): void;
}

/**
 * A way to what the descriptor `fd` leads to on which a write that would have to wait fails with EAGAIN instead.
 * Where the system has none (pipes on Windows), writes wait as they do on `fd` itself.
 */
export function nonBlocking(fd: number): NonBlocking {
  const kind = fstatSync(fd);
  const plain = { fd, ready() {} };
  // Has no reader to wait for, and opened anew it would be written from its beginning.
  if (kind.isFile()) return plain;
  return (kind.isSocket() ? undefined : openedAnew(fd)) ?? sharedWith(fd) ?? plain;
}

/** A pipe or terminal of one's own: other processes that write to it block as they always did. Linux only. */
function openedAnew(fd: number): NonBlocking | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return { fd: openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY), ready() {} };
  } catch {
    // Without /proc, or where it belongs to another user.
    return undefined;
  }
}

/**
 * A socket cannot be opened anew, nor can a pipe outside of Linux. libuv makes what it opens non-blocking
 * (`uv_pipe_open`, `uv_tcp_open`), for all processes that share it, and does not close standard output and error.
 * The start and the exit of such a process (`uv_spawn`, and Node.js for what it inherited) make it block again.
 */
function sharedWith(fd: number): NonBlocking | undefined {
  if (fd > 2) return undefined;
  let at = Number.NEGATIVE_INFINITY;
  const ready = (hasStalled: boolean) => {
    if (!hasStalled && performance.now() - at < AGAIN_MS) return;
    new Socket({ fd, readable: false, writable: true }).destroy();
    at = performance.now();
  };
  try {
    ready(false);
    return { fd, ready };
  } catch {
    // Neither a pipe nor a socket.
    return undefined;
  }
}
