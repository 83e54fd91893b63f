import type { IncomingMessage } from 'node:http';
import type { UploadedFile } from '../store/files.ts';
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
  const form = await parse(await readBody(req), type);
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

async function parse(body: Buffer, type: string): Promise<FormData> {
  try {
    if (!type.toLowerCase().startsWith('multipart/form-data')) throw new Refusal('INVALID_FORM');
    return await new Response(new Uint8Array(body), { headers: { 'Content-Type': type } }).formData();
  } catch {
    throw new Refusal('INVALID_FORM');
  }
}
