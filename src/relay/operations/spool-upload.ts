import { randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { idFirst } from './form-writer.ts';
import { spoolRoom } from './spool-room.ts';
import { spooledBody } from './spooled-body.ts';
import {
  type ArrivingUpload,
  MAX_BYTES_BESIDES,
  type UploadBody,
  type UploadOptions,
} from './upload-body.ts';
import type { UploadForm } from './upload-form.ts';

export interface SpoolOptions extends Pick<UploadOptions, 'maxBytes' | 'times'> {
  /** Where the files are, which have no name there. */
  readonly folder: string;
  /** How many bytes all forms may have together, of which one holder gets a quarter. */
  readonly roomBytes: number;
}

/** A form to be read. */
export interface Spooling {
  /** Begins to read it. */
  readonly openUpload: () => ArrivingUpload;
  /** The client's `Content-Length`, if it has sent one. */
  readonly declared: string | undefined;
  /** For whom its room counts. */
  readonly holders: readonly string[];
  /** The upstream id in the form, once it is whole; undefined if it holds none. */
  readonly id: () => string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Reads a whole form to disk. It can be sent more than once, with its id first and a known length, until it is closed.
 * Nothing of it stays behind a refusal, or a crash.
 * @throws Problem `too_many_streams` if there is no room, and those of the form; `CLIENT_LEFT`; the reason of `signal`
 */
export type SpoolUpload = (spooling: Spooling) => Promise<UploadForm>;

/** Makes the spool in `folder`. */
export function uploadSpool({ maxBytes, roomBytes, folder, times }: SpoolOptions): SpoolUpload {
  const takeRoom = spoolRoom(roomBytes);
  const longest = maxBytes + MAX_BYTES_BESIDES;

  return async function spoolUpload({ openUpload, declared, holders, id, signal }) {
    const bytes = Math.min(declared === undefined ? longest : Number(declared), longest);
    const giveBack = takeRoom(bytes, holders);
    let file: FileHandle | undefined;
    try {
      file = await unnamedFile(folder);
      signal.throwIfAborted();
      const { contentType, fileBytes } = await receive(openUpload(), file, signal);
      const { size } = await file.stat();
      return repeatable(file, {
        ...idFirst(contentType, id()),
        contentType,
        size,
        times,
        fileBytes: fileBytes(),
        giveBack,
      });
    } catch (error) {
      giveBack();
      await file?.close().catch(() => {});
      throw error;
    }
  };
}

/** Writes to a file as a form is written. @throws the system's error if that cannot be done */
export async function tryFolder(folder: string): Promise<void> {
  const file = await unnamedFile(folder);
  try {
    await file.appendFile('x');
  } finally {
    await file.close();
  }
}

/** Opens a new file that only this process can find, and that is gone with it. */
async function unnamedFile(folder: string): Promise<FileHandle> {
  const path = join(folder, `bot-relay-upload-${randomUUID()}`);
  const file = await open(path, 'wx+', 0o600);
  try {
    await unlink(path);
  } catch (error) {
    await file.close();
    throw error;
  }
  return file;
}

/** Writes the form into `file` as it arrives. Returns the form, which is whole. */
async function receive(
  upload: ArrivingUpload,
  file: FileHandle,
  signal: AbortSignal,
): Promise<ArrivingUpload> {
  signal.addEventListener('abort', upload.close, { once: true });
  try {
    for await (const piece of upload.stream) await file.appendFile(piece as Buffer);
    return upload;
  } catch (error) {
    signal.throwIfAborted();
    upload.signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', upload.close);
    upload.close();
  }
}

interface Spooled extends ReturnType<typeof idFirst>, Pick<SpoolOptions, 'times'> {
  readonly contentType: string;
  /** Of the file, in bytes. */
  readonly size: number;
  /** How large the file in the form is, in bytes. */
  readonly fileBytes: number;
  readonly giveBack: () => void;
}

function repeatable(file: FileHandle, { giveBack, fileBytes, ...form }: Spooled): UploadForm {
  let sending: UploadBody | undefined;
  return {
    isRepeatable: true,
    open() {
      sending?.close();
      sending = spooledBody(file, form);
      return sending;
    },
    fileBytes: () => (sending ? fileBytes : 0),
    close() {
      sending?.close();
      giveBack();
      // It waits for a read that is under way.
      file.close().catch(() => {});
    },
  };
}
