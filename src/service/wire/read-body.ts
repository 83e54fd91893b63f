import type { IncomingMessage } from 'node:http';
import type { UploadedFile } from '../store/files.ts';
import { Refusal, type RefusalCode } from './answers.ts';
import { formDataOf } from './form-data.ts';

/** The largest body that is read: a file of 20 MB with its form around it. */
const MAX_BODY_BYTES = 21 * 1024 * 1024;
const FIRST_BYTES = 16 * 1024;
/** How many bytes all bodies that are being read may have together. */
const MAX_BYTES_OF_ALL = 128 * 1024 * 1024;
let bytesOfAll = 0;

/**
 * Reads the whole body. The rest of one that is refused is read and thrown away, so that the refusal arrives.
 * @throws Refusal `TOO_LARGE`, or `RATE_LIMITED` if there is no room beside the others
 */
async function readBody(req: IncomingMessage): Promise<Buffer> {
  // One buffer: a list of very many small chunks would take far more memory than their bytes.
  let body = Buffer.allocUnsafe(FIRST_BYTES);
  let length = 0;
  let refusal: RefusalCode | undefined;
  const letGo = () => {
    bytesOfAll -= length;
    length = 0;
  };
  await new Promise<void>((resolve, reject) => {
    req.on('data', (chunk: Buffer) => {
      if (refusal) return;
      const begin = length;
      length += chunk.length;
      bytesOfAll += chunk.length;
      if (length > MAX_BODY_BYTES) refusal = 'TOO_LARGE';
      else if (bytesOfAll > MAX_BYTES_OF_ALL) refusal = 'RATE_LIMITED';
      else if (length > body.length) body = Buffer.concat([body], Math.max(2 * body.length, length));
      if (refusal) {
        letGo();
        body = Buffer.alloc(0);
      } else chunk.copy(body, begin);
    });
    req.once('end', resolve).once('error', reject);
  }).finally(() => {
    body = body.subarray(0, length);
    letGo();
  });
  if (refusal) throw new Refusal(refusal);
  return body;
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
