/** One day. */
const MAX_RETRY_AFTER_S = 86_400;

/** `Retry-After`, which is in seconds or a date (RFC 9110 §10.2.3), as whole seconds from now; 1 by default. */
export function retryAfterSeconds(header: string | undefined, now: number): number {
  const text = header?.trim() ?? '';
  const seconds = /^\d+$/.test(text) ? Number(text) : Math.ceil((Date.parse(text) - now) / 1000);
  return Math.min(Math.max(Number.isNaN(seconds) ? 1 : seconds, 1), MAX_RETRY_AFTER_S);
}
