import type { Request } from 'express';

/** The query of the request unchanged, with its `?`; empty if there is none. */
export function queryOf({ originalUrl }: Request): string {
  const at = originalUrl.indexOf('?');
  return at < 0 ? '' : originalUrl.slice(at);
}
