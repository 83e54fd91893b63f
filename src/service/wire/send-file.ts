import type { IncomingMessage, ServerResponse } from 'node:http';
import { Refusal } from './answers.ts';

export interface SentFile {
  readonly name: string;
  /** Its media type, if one is known. */
  readonly type: string;
  readonly bytes: Buffer;
}

/**
 * Answers with a file, or with the range of it that the request asks for (RFC 9110 §14). `headers` are sent besides.
 * @throws Refusal `INVALID_RANGE` if nothing of the range is in the file
 */
export function sendFile(
  { headers: asked }: IncomingMessage,
  res: ServerResponse,
  { name, type, bytes, headers = {} }: SentFile & { readonly headers?: Readonly<Record<string, string>> },
): void {
  // No version of the file is named, so that no condition can hold.
  const range = asked['if-range'] === undefined ? rangeOf(asked.range, bytes.length) : undefined;
  const part = range ? bytes.subarray(range.from, range.to) : bytes;
  res.writeHead(range ? 206 : 200, {
    'Content-Type': type || 'application/octet-stream',
    'Content-Length': part.length,
    'Content-Disposition': `attachment; filename="${plain(name)}"; filename*=UTF-8''${encoded(name)}`,
    'Accept-Ranges': 'bytes',
    ...(range && { 'Content-Range': `bytes ${range.from}-${range.to - 1}/${bytes.length}` }),
    ...headers,
  });
  res.end(part);
}

/** One range of bytes, its end excluded. Undefined if the header names none, or several. */
function rangeOf(header: string | undefined, length: number): { from: number; to: number } | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  const from = first === '' ? Math.max(0, length - Number(last)) : Number(first);
  const to = first === '' || last === '' ? length : Math.min(length, Number(last) + 1);
  if (from >= to) throw new Refusal('INVALID_RANGE');
  return { from, to };
}

/** The name in characters that need no encoding (RFC 6266, appendix D). */
const plain = (name: string) => name.replace(/[^\w. -]/g, '_');

/** The name in the encoding of RFC 8187. */
const encoded = (name: string) =>
  encodeURIComponent(name.toWellFormed()).replace(/['()*]/g, (one) => `%${one.charCodeAt(0).toString(16)}`);
