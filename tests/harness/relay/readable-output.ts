import { type ChildProcess, execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';

/** What the standard output of a process can be. */
export type Kind = 'pipe' | 'socket' | 'file';

/** The standard output of a process. It is not read before `read` is called. */
export interface ReadableOutput {
  /** Begins to read. */
  read(): void;
  /** The text that was read so far. */
  text(): string;
  /** Resolves when everything that was written has been read. */
  readonly ended: Promise<void>;
}

const folders: string[] = [];
const streams: Readable[] = [];

/** Makes an output: pass `stdio` to `spawn`, and the process to `of`. */
export function readableOutput(kind: Kind): {
  readonly stdio: number | 'pipe';
  of(child: ChildProcess): ReadableOutput;
} {
  // Node's own pipe is a pair of sockets.
  if (kind === 'socket') return { stdio: 'pipe', of: ({ stdout }) => readingLater(stdout as Readable) };
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-output-'));
  folders.push(folder);
  const path = join(folder, kind);
  if (kind === 'file') {
    const stdio = openSync(path, 'a');
    return {
      stdio,
      of() {
        closeSync(stdio);
        return { read() {}, text: () => readFileSync(path, 'utf8'), ended: Promise.resolve() };
      },
    };
  }
  execFileSync('mkfifo', [path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const stdio = openSync(path, 'w');
  return {
    stdio,
    of() {
      closeSync(stdio);
      return reading(() => new Socket({ fd: reader, readable: true, writable: false }));
    },
  };
}

/** Node.js would read and throw away at the exit of the process what has no listener. */
function readingLater(stdout: Readable): ReadableOutput {
  stdout.on('readable', () => {});
  return reading(() => stdout.removeAllListeners('readable'));
}

function reading(open: () => Readable): ReadableOutput {
  let text = '';
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  return {
    read() {
      const stream = open().setEncoding('utf8');
      streams.push(stream);
      stream.on('data', (part: string) => {
        text += part;
      });
      stream.once('end', resolve);
    },
    text: () => text,
    ended,
  };
}

/** Closes and removes all outputs; for `afterEach`. */
export function removeOutputs(): void {
  for (const stream of streams.splice(0)) stream.destroy();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
}
