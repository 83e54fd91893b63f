import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Problem } from '../errors.ts';
import { CLIENT_LEFT } from './client-connection.ts';
import { requireMediaType } from './media-type.ts';

export interface BodyOptions {
  readonly maxBytes: number;
  /** How long the whole body may take to arrive, in ms. */
  readonly timeoutMs: number;
  /** Counts bytes before they are read. @throws Problem if they are too many */
  readonly count?: ((bytes: number) => void) | undefined;
}

/**
 * Reads the whole body. It refuses a body that is too large at once, where the body parser of Express first reads all
 * of it.
 * @throws Problem `body_too_large`, `request_timeout`, and those of `count`; `CLIENT_LEFT` if the client leaves before
 *   the body is whole
 */
export async function readBody(req: IncomingMessage, options: BodyOptions): Promise<Buffer> {
  const { maxBytes, timeoutMs, count = () => {} } = options;
  // The request may have closed before, while the session was looked up.
  if (req.destroyed) throw CLIENT_LEFT;
  const { 'content-length': header } = req.headers;
  const declared = header === undefined ? undefined : Number(header);
  if (declared !== undefined) {
    if (declared > maxBytes) throw tooLarge(maxBytes);
    count(declared);
  }
  return new Promise((resolve, reject) => {
    // One buffer: a list of many small chunks would take far more memory than their bytes.
    let bytes = Buffer.allocUnsafe(declared ?? FIRST_BYTES);
    let length = 0;
    const stop = (settle: () => void) => {
      clearTimeout(timer);
      req.off('data', onData).off('end', onEnd).off('close', onClose);
      settle();
    };
    const refuse = (problem: unknown) => stop(() => reject(problem));
    const onData = (chunk: Buffer) => {
      const end = length + chunk.length;
      try {
        if (end > maxBytes) throw tooLarge(maxBytes);
        if (declared === undefined) count(Math.max(chunk.length, LEAST_COUNTED));
      } catch (problem) {
        return refuse(problem);
      }
      if (end > bytes.length) {
        const larger = Buffer.allocUnsafe(Math.min(maxBytes, Math.max(2 * bytes.length, end)));
        bytes.copy(larger, 0, 0, length);
        bytes = larger;
      }
      chunk.copy(bytes, length);
      length = end;
    };
    const onEnd = () => stop(() => resolve(bytes.subarray(0, length)));
    const onClose = () => refuse(CLIENT_LEFT);
    const onLate = () => refuse(new Problem('request_timeout', 'The body did not arrive in time.', CLOSE));
    const timer = setTimeout(onLate, timeoutMs);
    req.on('data', onData).on('end', onEnd).on('close', onClose);
  });
}

/** The room for a body whose length is not known, in bytes; it doubles. */
const FIRST_BYTES = 4_096;
/** The least that a chunk counts as, in bytes: a smaller one costs as much. */
const LEAST_COUNTED = 128;

const CLOSE = { headers: { Connection: 'close' } };

function tooLarge(maxBytes: number): Problem {
  return new Problem('body_too_large', `The body is over ${maxBytes} bytes.`);
}

/**
 * Reads the whole body of a form (`application/x-www-form-urlencoded`).
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`, `invalid_form`; `CLIENT_LEFT`
 */
export async function readForm(req: IncomingMessage, options: BodyOptions): Promise<URLSearchParams> {
  requireMediaType(req.headers, 'application/x-www-form-urlencoded');
  const body = await readBody(req, options);
  const text = body.toString('latin1');
  // The time of the parser grows with the square of the fields: half a million would stop the process for seconds.
  if (text.split('&', MAX_FIELDS + 1).length > MAX_FIELDS)
    throw new Problem('invalid_form', `The form has more than ${MAX_FIELDS} fields.`);
  return new URLSearchParams(text);
}

/** Far more fields than any form has. */
const MAX_FIELDS = 1000;

/**
 * Lets only requests without a body pass (RFC 9112 §6).
 * @throws Problem `body_too_large`
 */
export function refuseBody(headers: IncomingHttpHeaders): void {
  const { 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  if (encoding !== undefined || Number(length) !== 0) {
    throw new Problem('body_too_large', 'This path takes no body.');
  }
}

/**
 * All bytes of `body`; `undefined` if they are more than `maxBytes`: then the rest is not read, and `body` is closed.
 * Rejects with the error of `body`.
 */
export async function readAtMost(body: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    // Leaving the loop closes the body.
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

/**
 * Frees the memory of bytes that nobody reads any more; they then have no length. Otherwise V8 frees it by a collection
 * of its whole heap, for every few dozen MB. Does nothing if they are a part of a larger buffer, such as the pool of
 * `Buffer`.
 */
export function freeBytes(bytes: Buffer): void {
  const { buffer, length } = bytes;
  if (length > 0 && length === buffer.byteLength && 'transfer' in buffer) buffer.transfer(0);
}
