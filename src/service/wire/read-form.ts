import type { IncomingMessage } from 'node:http';
import type { UploadedFile } from '../store/files.ts';
import { formDataOf } from './form-data.ts';
import { readBody } from './read-body.ts';
import { Refusal } from './refusal.ts';

/** The largest file that is taken. */
const MAX_FILE_BYTES = 20 * 1024 * 1024;

export interface UploadForm {
  readonly file: UploadedFile;
  readonly customChannelId: string | undefined;
}

/**
 * Reads a form (`multipart/form-data`, RFC 7578) with one `file`, and with a `customChannelId` or without one.
 * @throws Refusal `INVALID_FORM` or `TOO_LARGE`
 */
export async function readForm(req: IncomingMessage): Promise<UploadForm> {
  const type = req.headers['content-type'] ?? '';
  const form = await formDataOf(await readBody(req), type);
  if (!form) throw new Refusal('INVALID_FORM');
  const names = [...form.keys()];
  const isOnce = new Set(names).size === names.length;
  const file = form.get('file');
  const id = form.get('customChannelId') ?? undefined;
  if (!isOnce || file === null || typeof file === 'string' || (id !== undefined && typeof id !== 'string'))
    throw new Refusal('INVALID_FORM');
  if (file.size > MAX_FILE_BYTES) throw new Refusal('TOO_LARGE');
  const bytes = Buffer.from(await file.arrayBuffer());
  return { file: { name: file.name, type: file.type, bytes }, customChannelId: id };
}
