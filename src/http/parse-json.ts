import { isUtf8 } from 'node:buffer';

/** The value of JSON in UTF-8 (RFC 8259 §8.1). @throws SyntaxError if the bytes are something else */
export function parseJson(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new SyntaxError('no UTF-8');
  return JSON.parse(bytes.toString('utf8'));
}

/** Whether the bytes are JSON in UTF-8. */
export function isJson(bytes: Buffer): boolean {
  try {
    parseJson(bytes);
    return true;
  } catch {
    return false;
  }
}
