import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

const JSON_TYPE = /^application\/(?:[a-z0-9.-]+\+)?json$/;

/** The type of a `Content-Type` in small letters, without parameters (RFC 9110 §8.3.1); '' if there is none. */
export function essenceOf(type = ''): string {
  return (type.split(';', 1)[0] ?? '').trim().toLowerCase();
}

/** Whether a `Content-Type` is that of JSON (RFC 6839 §3.1), with any parameters. */
export function isJsonType(type?: string): boolean {
  return JSON_TYPE.test(essenceOf(type));
}

/** Whether a body is sent as it is (RFC 9110 §8.4.1). */
export function isUnencoded(headers: { readonly 'content-encoding'?: string | undefined }): boolean {
  return (headers['content-encoding']?.trim().toLowerCase() ?? 'identity') === 'identity';
}

/**
 * Lets only bodies of the media type `type` pass that are sent without an encoding.
 * @throws Problem `unsupported_media_type`
 */
export function requireMediaType(headers: IncomingHttpHeaders, type: string): void {
  if (essenceOf(headers['content-type']) !== type)
    throw new Problem('unsupported_media_type', `Send Content-Type: ${type}.`);
  if (!isUnencoded(headers))
    throw new Problem('unsupported_media_type', 'Send the body without Content-Encoding.');
}
