import { constants, fstatSync, openSync } from 'node:fs';
import { Socket } from 'node:net';

/** A descriptor for writing without waiting for the reader. */
export interface NonBlocking {
  readonly fd: number;
  /** Must be called before writing. */
  ready(): void;
}

/**
 * Returns a descriptor for the same reader as `fd`, on which a write that would block fails with EAGAIN instead.
 * If the system offers none (pipes on Windows), writes block as they do on `fd` itself.
 */
export function nonBlocking(fd: number): NonBlocking {
  const kind = fstatSync(fd);
  const plain = { fd, ready() {} };
  // A file has no reader to wait for, and a second descriptor would write from its beginning.
  if (kind.isFile()) return plain;
  return (kind.isSocket() ? undefined : reopened(fd)) ?? sharedWith(fd) ?? plain;
}

/** A new descriptor for a pipe or terminal: other processes that write to it still block. Linux only. */
function reopened(fd: number): NonBlocking | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return { fd: openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY), ready() {} };
  } catch {
    // There is no /proc, or the pipe belongs to another user.
    return undefined;
  }
}

/** What Node.js has for a stream of libuv. */
interface Handle {
  setBlocking(isBlocking: boolean): void;
}

/**
 * For a socket, or a pipe outside of Linux, which cannot be opened again. It becomes non-blocking for all processes
 * that share it. The handle stays open, since closing it would close a descriptor above 2.
 */
function sharedWith(fd: number): NonBlocking | undefined {
  try {
    const handle: Handle = Reflect.get(new Socket({ fd, readable: false, writable: true }), '_handle');
    // Another program that shares it makes it block again when it starts one itself, or exits (libuv,
    // `uv__process_child_init`; Node.js, `ResetStdio`). A write at that moment may block for ever.
    const ready = () => handle.setBlocking(false);
    ready();
    return { fd, ready };
  } catch {
    // Neither a pipe nor a socket.
    return undefined;
  }
}
