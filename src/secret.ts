import { createHash } from 'node:crypto';
import { inspect } from 'node:util';

const MASK = '[secret]';

/**
 * A value that must never be printed. It shows as `[secret]` in template strings, `JSON.stringify`,
 * `util.inspect`, errors and logs; only `open()` gives the value itself.
 */
export interface Secret {
  /** The value. Call it where the value is used, and keep no copy. */
  open(): string;
  /** The first 8 hex digits of the value's SHA-256: tells secrets apart in logs and metrics. */
  readonly fingerprint: string;
}

/** Wraps `value` so that only `open()` shows it. */
export function secret(value: string): Secret {
  const mask = () => MASK;
  const sealed = {
    fingerprint: createHash('sha256').update(value).digest('hex').slice(0, 8),
  };
  // Not enumerable, so that no serializer walks into them.
  for (const [name, method] of [
    ['open', () => value],
    ['toString', mask],
    ['toJSON', mask],
    [Symbol.toPrimitive, mask],
    [inspect.custom, mask],
  ] as const) {
    Object.defineProperty(sealed, name, { value: method });
  }
  return Object.freeze(sealed) as Secret;
}
