import { randomBytes } from 'node:crypto';
import { PassThrough } from 'node:stream';
import { Problem } from '../../errors.ts';
import { invalidForm, type PartHead } from './part-head.ts';
import type { PartListener } from './upload-parts.ts';

export interface FormWriterOptions {
  /** The largest file, in bytes. */
  readonly maxBytes: number;
  /**
   * The upstream id for the id in the form; undefined if the form must hold none. It throws the Problem that refuses the
   * form.
   */
  readonly upstreamId: ((name: string, id: string) => string) | undefined;
}

/** A form for the bot service. */
export interface FormWriter extends Pick<PartListener, 'file' | 'bytes' | 'fileEnd' | 'text' | 'end'> {
  readonly contentType: string;
  readonly stream: PassThrough;
  /** How many bytes of the file have been written. */
  readonly fileBytes: () => number;
}

/** How many bytes of a form are kept on their way, besides those in sockets. */
const BUFFERED_BYTES = 65_536;

/**
 * Writes a form: the file, then the id of the conversation, each once, whatever the order in which they arrive. The
 * closing boundary is written by `end` only. All but `fileEnd` throw a Problem if the form cannot be used.
 */
export function formWriter({ maxBytes, upstreamId }: FormWriterOptions): FormWriter {
  const boundary = `bot-relay-${randomBytes(16).toString('hex')}`;
  const stream = new PassThrough({ highWaterMark: BUFFERED_BYTES });
  const begin = (parameters: string) => `--${boundary}\r\nContent-Disposition: form-data; ${parameters}\r\n`;
  let length = 0;
  let isFileWhole = false;
  let id: string | undefined;
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    stream,
    fileBytes: () => length,
    file({ name, fileName = '', type }: PartHead) {
      if (name !== 'file') throw invalidForm('The file must have the name file.');
      stream.write(`${begin(`name="file"; filename="${escaped(fileName)}"`)}Content-Type: ${type}\r\n\r\n`);
    },
    bytes(bytes) {
      if (length + bytes.length > maxBytes) throw tooLarge(maxBytes);
      length += bytes.length;
      return stream.write(bytes);
    },
    fileEnd() {
      isFileWhole = true;
    },
    text(name, value) {
      if (!upstreamId) throw invalidForm('The form must hold the file alone.');
      if (id !== undefined) throw invalidForm('The form has two texts.');
      id = upstreamId(name, value);
    },
    end() {
      if (!isFileWhole) throw invalidForm('The form has no file.');
      if (upstreamId && id === undefined) throw invalidForm('The form has no customChannelId.');
      stream.end(`\r\n${id === undefined ? '' : idPart(boundary, id)}--${boundary}--\r\n`);
    },
  };
}

function idPart(boundary: string, id: string): string {
  return `--${boundary}\r\nContent-Disposition: form-data; name="customChannelId"\r\n\r\n${id}\r\n`;
}

/** The problem of a file, or a form, that is over the limit. */
export function tooLarge(maxBytes: number): Problem {
  return new Problem('body_too_large', `The file is over ${maxBytes} bytes.`);
}

/** A file's name in a header, as browsers write it (WHATWG HTML §4.10.21.8). */
function escaped(name: string): string {
  return name.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}
