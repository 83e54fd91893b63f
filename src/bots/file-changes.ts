import { statSync } from 'node:fs';

/** How often the files are checked, in ms. */
const POLL_EVERY_MS = 1_000;

export interface FileChangesOptions {
  /** The files to check; called every time. They need not exist. */
  readonly files: () => readonly string[];
  /** Called when the files are to be read. */
  readonly onChange: () => void;
  /** How often the files are checked, in ms. */
  readonly pollEveryMs?: number;
}

export interface FileChanges {
  /** Reads the files now, whether they have changed or not. */
  readNow(): void;
  close(): void;
}

/**
 * Calls `onChange` when files have changed: written in place, replaced by a rename, or behind a symbolic link that now
 * points elsewhere. Changed files are read after one check interval without further change, so that no file is read
 * while it is being written.
 *
 * It polls, since `fs.watch` loses a file that is replaced by a rename, and does not see changes behind a symbolic link.
 */
export function fileChanges(options: FileChangesOptions): FileChanges {
  const { files, onChange, pollEveryMs = POLL_EVERY_MS } = options;
  // Empty at first, since the files may have changed after they were read at the start.
  let readStamp = '';
  let changedStamp: string | undefined;

  function read(): void {
    changedStamp = undefined;
    const before = stampOf(files());
    onChange();
    // The stamp from before `onChange`: files that changed or were added during it are read again.
    readStamp = before;
  }
  function poll(): void {
    const stamp = stampOf(files());
    if (stamp === readStamp) changedStamp = undefined;
    else if (stamp === changedStamp) read();
    else changedStamp = stamp;
  }
  const timer = setInterval(poll, pollEveryMs);
  timer.unref();
  return { readNow: read, close: () => clearInterval(timer) };
}

/** A text that changes when one of the files is replaced or written. */
function stampOf(paths: readonly string[]): string {
  return paths.map((path) => `${path} ${fileStamp(path)}`).join('\n');
}

function fileStamp(path: string): string {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(' ');
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown';
  }
}
