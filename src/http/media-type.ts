import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

/**
 * Lets only bodies of the media type `type` pass, sent as they are.
 * @throws Problem `unsupported_media_type`
 */
export function requireMediaType(headers: IncomingHttpHeaders, type: string): void {
  const essence = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
  if (essence !== type) throw new Problem('unsupported_media_type', `Send Content-Type: ${type}.`);
  const encoding = headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (encoding !== 'identity')
    throw new Problem('unsupported_media_type', 'Send the body without Content-Encoding.');
}
