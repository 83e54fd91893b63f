import { isUtf8 } from 'node:buffer';
import type { Request, RequestHandler } from 'express';
import { Problem } from '../errors.ts';

export interface JsonBodyOptions {
  readonly maxBytes: number;
  /** How long the whole body may take to arrive, in ms. */
  readonly timeoutMs: number;
}

/**
 * Reads the whole body into `res.locals.body`, as the bytes that came, once they are known to be JSON
 * (RFC 8259) in UTF-8. Our own reader because the common one answers a body that is too large only after it
 * has read all of it.
 * @throws Problem `unsupported_media_type`, `body_too_large`, `request_timeout`, `invalid_json`
 */
export function jsonBody({ maxBytes, timeoutMs }: JsonBodyOptions): RequestHandler {
  return async function jsonBody(req, res, next) {
    refuseOtherMediaTypes(req);
    const body = await readBody(req, maxBytes, timeoutMs);
    // The client left before its body was whole: there is nobody to answer.
    if (body === undefined) return;
    if (!isJson(body)) throw new Problem('invalid_json', 'The body is not JSON in UTF-8.');
    res.locals.body = body;
    next();
  };
}

function refuseOtherMediaTypes({ headers }: Request): void {
  const essence = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
  if (essence !== 'application/json') {
    throw new Problem('unsupported_media_type', 'Send Content-Type: application/json.');
  }
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding !== 'identity') {
    throw new Problem('unsupported_media_type', 'Send the body without Content-Encoding.');
  }
}

function readBody(req: Request, maxBytes: number, timeoutMs: number): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const stop = (settle: () => void) => {
      clearTimeout(timer);
      req.off('data', onData).off('end', onEnd).off('close', onClose);
      settle();
    };
    const refuse = (problem: Problem) => stop(() => reject(problem));
    const tooLarge = () => refuse(new Problem('body_too_large', `The body is over ${maxBytes} bytes.`));
    const onData = (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maxBytes) tooLarge();
    };
    const onEnd = () => stop(() => resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, length)));
    const onClose = () => stop(() => resolve(undefined));
    const timer = setTimeout(
      () =>
        refuse(
          new Problem('request_timeout', 'The body did not arrive in time.', {
            headers: { Connection: 'close' },
          }),
        ),
      timeoutMs,
    );
    // Its close may be over already, while the session was looked up.
    if (req.destroyed) return onClose();
    if (Number(req.headers['content-length']) > maxBytes) return tooLarge();
    req.on('data', onData).on('end', onEnd).on('close', onClose);
  });
}

function isJson(body: Buffer): boolean {
  if (!isUtf8(body)) return false;
  try {
    JSON.parse(body.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}
