import type { IncomingHttpHeaders } from 'node:http';
import { essenceOf } from '../../http/media-type.ts';

/** Pictures that browsers show without running anything of them. */
const SHOWN = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
const ANY_TYPE = 'application/octet-stream';
/** In types that browsers run or apply: JavaScript (WHATWG MIME Sniffing §4.6), CSS, HTML, XML with SVG, WebAssembly. */
const RUN = /script|css|html|[/+]xml|xsl|wasm/;
const MEDIA_TYPE =
  /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}(?:; *[\w-]{1,40}=(?:[\w.-]{1,80}|"[\w. -]{1,80}"))*$/;
/** A name that no reader takes for a path or for another parameter. */
const PLAIN_NAME = /; *filename=(?:"([\w][\w .()-]{0,199})"|([\w][\w.()-]{0,199})) *(?:;|$)/i;
/** RFC 8187 §3.2.1. */
const ENCODED_NAME = /; *filename\*=(UTF-8''[\w.!$&+^`|~%-]{1,600}) *(?:;|$)/i;

/**
 * The headers with which a file of the bot service goes to the browser, which must never run it: it has no type that
 * runs, is a download, unless it is a picture, and has no origin (CSP `sandbox`). It has no validator, since it must
 * not be kept.
 */
export function fileHeaders(
  headers: IncomingHttpHeaders,
  mask: (text: string) => string,
): Readonly<Record<string, string>> {
  const { 'content-type': given = '', 'content-length': length = '', 'content-range': range = '' } = headers;
  const isKept = MEDIA_TYPE.test(given) && mask(given) === given && !RUN.test(essenceOf(given));
  const type = isKept ? given : ANY_TYPE;
  return {
    'Content-Type': type,
    'Content-Disposition': disposition(type, headers['content-disposition'] ?? '', mask),
    ...(/^\d{1,15}$/.test(length) && { 'Content-Length': length }),
    ...(/^bytes (?:\d{1,15}-\d{1,15})\/(?:\d{1,15}|\*)$/.test(range) && { 'Content-Range': range }),
    ...(headers['accept-ranges'] === 'bytes' && { 'Accept-Ranges': 'bytes' }),
    'Content-Security-Policy':
      "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none';sandbox",
    'X-Content-Type-Options': 'nosniff',
  };
}

/** RFC 6266. Of the service's header, only the file's name is taken, if it is plain. */
function disposition(type: string, given: string, mask: (text: string) => string): string {
  const essence = essenceOf(type);
  const [, quoted, token] = PLAIN_NAME.exec(given) ?? [];
  const name = quoted ?? token;
  const encoded = ENCODED_NAME.exec(given)?.[1];
  const text = [
    SHOWN.has(essence) ? 'inline' : 'attachment',
    ...(name === undefined ? [] : [`filename="${name}"`]),
    ...(encoded !== undefined && isPlainName(encoded) ? [`filename*=${encoded}`] : []),
  ].join('; ');
  return mask(text);
}

function isPlainName(encoded: string): boolean {
  try {
    return /^[^\p{C}/\\:*?"<>|.][^\p{C}/\\:*?"<>|]{0,199}$/u.test(
      decodeURIComponent(encoded.slice("UTF-8''".length)),
    );
  } catch {
    return false;
  }
}
