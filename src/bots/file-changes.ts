import { statSync } from 'node:fs';

/** How often the files are looked at, in ms. */
const LOOK_EVERY_MS = 1_000;

export interface FileChangesOptions {
  /** The files to look at; asked every time. Those that are not there may come. */
  readonly files: () => readonly string[];
  /** Reads the files. */
  readonly onChange: () => void;
  /** In ms. */
  readonly lookEveryMs?: number;
}

export interface FileChanges {
  /** Reads the files now, whether they have changed or not. */
  readNow(): void;
  close(): void;
}

/**
 * Calls `onChange` when files have changed, by whatever means: written in place, renamed over, or behind a
 * symbolic link that now points elsewhere. A file that was changed is read once it has been still from one
 * look to the next, so that none is read while it is being written.
 *
 * It looks at the files rather than have the system tell: `fs.watch` loses a file that is renamed over, and
 * never sees what happens behind a symbolic link.
 */
export function fileChanges(options: FileChangesOptions): FileChanges {
  const { files, onChange, lookEveryMs = LOOK_EVERY_MS } = options;
  // What was read at the start may have changed since: the first look takes nothing for granted.
  let known = '';
  let changing: string | undefined;

  function read(): void {
    changing = undefined;
    const before = stampOf(files());
    onChange();
    // What was written meanwhile, or is only now among the files, is looked at again.
    known = before;
  }
  function look(): void {
    const stamp = stampOf(files());
    if (stamp === known) changing = undefined;
    else if (stamp === changing) read();
    else changing = stamp;
  }
  const timer = setInterval(look, lookEveryMs);
  timer.unref();
  return { readNow: read, close: () => clearInterval(timer) };
}

/** What differs whenever one of the files is another one, or was written. */
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
