import type { IncomingMessage } from 'node:http';
import type { UploadedFile } from '../store/files.ts';
import { Refusal } from './answers.ts';

/** The largest body that is read: a file of 20 MB with its form around it. */
const MAX_BODY_BYTES = 21 * 1024 * 1024;

/**
 * Reads the whole body. The rest of one that is too large is read and thrown away, so that the refusal arrives.
 * @throws Refusal `TOO_LARGE`
 */
async function readBody(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  await new Promise<void>((resolve, reject) => {
    req.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length <= MAX_BODY_BYTES) chunks.push(chunk);
      else chunks.length = 0;
    });
    req.once('end', resolve).once('error', reject);
  });
  if (length > MAX_BODY_BYTES) throw new Refusal('TOO_LARGE');
  return Buffer.concat(chunks, length);
}

/** The body as a JSON object; undefined if it is none, or of another media type. */
export async function readJsonObject(req: IncomingMessage): Promise<Record<string, unknown> | undefined> {
  const bytes = await readBody(req);
  if (!req.headers['content-type']?.startsWith('application/json')) return undefined;
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

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
