import type { ServerResponse } from 'node:http';

/** Sets all `headers` of an answer. */
export function setHeaders(res: ServerResponse, headers: Readonly<Record<string, string>>): void {
  for (const name in headers) res.setHeader(name, headers[name] as string);
}
