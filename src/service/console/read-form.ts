import type { Request } from 'express';
import { Problem } from '../../errors.ts';
import { readBody, readForm } from '../../http/body.ts';
import { formDataOf } from '../wire/form-data.ts';

/** Longer than all that a form of the console can hold, each character as three bytes of percent-encoding. */
const FIELDS = { maxBytes: 1024 * 1024, timeoutMs: 30_000 };
const FILES = { maxBytes: 21 * 1024 * 1024, timeoutMs: 300_000 };

/**
 * Reads a form. Line breaks are `\n`.
 * @throws Problem `body_too_large`, `request_timeout`, `invalid_form` or `unsupported_media_type`
 */
export async function fieldsOf(req: Request): Promise<URLSearchParams> {
  const form = await readForm(req, FIELDS);
  const plain = (value: string) => value.replaceAll('\r\n', '\n');
  return new URLSearchParams([...form].map(([name, value]): [string, string] => [name, plain(value)]));
}

/** A file that was sent. */
export interface SentFile {
  readonly name: string;
  readonly bytes: Buffer;
}

/**
 * Reads the files of a form (`multipart/form-data`, RFC 7578).
 * @throws Problem `invalid_form`, `body_too_large` or `request_timeout`
 */
export async function filesOf(req: Request): Promise<SentFile[]> {
  const body = await readBody(req, FILES);
  const type = req.headers['content-type'] ?? '';
  const form = await formDataOf(body, type);
  if (!form) throw new Problem('invalid_form', 'The form could not be read, or has more than 1,000 files.');
  const files = form.getAll('file').filter((one) => typeof one !== 'string');
  // A browser sends a nameless file if none was chosen.
  return Promise.all(
    files
      .filter(({ name }) => name !== '')
      .map(async (one) => ({ name: one.name, bytes: Buffer.from(await one.arrayBuffer()) })),
  );
}
