import type { Request } from 'express';

/** The query as it came, its `?` with it; empty if there is none. */
export function queryOf({ originalUrl }: Request): string {
  const at = originalUrl.indexOf('?');
  return at < 0 ? '' : originalUrl.slice(at);
}
