import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { transferTimers } from './transfer-timers.ts';
import { notTaken, type UploadBody, type UploadOptions } from './upload-body.ts';

/** A form on disk, in which the file stands first. */
export interface SpooledForm extends Pick<UploadOptions, 'times'> {
  readonly contentType: string;
  /** In bytes. */
  readonly size: number;
  /** What is sent before the file's part, and what after it: together as long as what stands after it on disk. */
  readonly before: Buffer;
  readonly after: Buffer;
}

const PIECE_BYTES = 65_536;

/** One sending of a form on disk. It is read no faster than the bot service takes it. */
export function spooledBody(file: FileHandle, form: SpooledForm): UploadBody {
  const { contentType, size, times } = form;
  const aborted = new AbortController();
  const done = Promise.withResolvers<void>();
  // Who looks only at the signal does not wait for it.
  done.promise.catch(() => {});
  const timers = transferTimers(times, () => abort(notTaken()));
  const stream = Readable.from(piecesOf(file, form, timers.moved), { objectMode: false });

  function abort(reason: unknown): void {
    timers.stop();
    if (stream.readableEnded || aborted.signal.aborted) return;
    aborted.abort(reason);
    done.reject(reason);
    stream.destroy();
  }

  stream.once('end', () => {
    timers.stop();
    done.resolve();
  });
  stream.once('error', abort);
  return {
    ...{ contentType, length: size, stream, signal: aborted.signal, done: done.promise },
    close: () => abort(CLOSED),
  };
}

const CLOSED = new Error('the upload was closed');

/** The form with its id first; calls `taken` whenever more of it is asked for. */
async function* piecesOf(file: FileHandle, { size, before, after }: SpooledForm, taken: () => void) {
  // Copies: who sends a chunk may free its memory, and these are sent again with the next key.
  if (before.length > 0) yield Buffer.from(before);
  const end = size - before.length - after.length;
  for (let at = 0; at < end; ) {
    taken();
    const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, end - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, at);
    if (bytesRead === 0) throw new Error('the spooled form is shorter than it was');
    at += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
  taken();
  yield Buffer.from(after);
}
