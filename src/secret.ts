import { createHash } from 'node:crypto';
import { inspect } from 'node:util';

const MASK = '[secret]';

/**
 * A value that must never be printed. Template strings, `JSON.stringify`, `util.inspect`, errors and logs show it as
 * `[secret]`; only `open()` returns the value.
 */
export interface Secret {
  /** Returns the value. Call it where the value is used, and keep no copy. */
  open(): string;
  /** The first 8 hex digits of the value's SHA-256, to distinguish secrets in logs and metrics. */
  readonly fingerprint: string;
}

/** Wraps `value` so that only `open()` shows it. */
export function secret(value: string): Secret {
  const mask = () => MASK;
  const masked = {
    fingerprint: createHash('sha256').update(value).digest('hex').slice(0, 8),
  };
  // Not enumerable, so that no serializer visits them.
  for (const [name, method] of [
    ['open', () => value],
    ['toString', mask],
    ['toJSON', mask],
    [Symbol.toPrimitive, mask],
    [inspect.custom, mask],
  ] as const) {
    Object.defineProperty(masked, name, { value: method });
  }
  return Object.freeze(masked) as Secret;
}
