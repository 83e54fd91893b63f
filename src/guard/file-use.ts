import type { IncomingHttpHeaders } from 'node:http';
import { Problem } from '../errors.ts';

/** Uses of a file (`Sec-Fetch-Dest`, W3C Fetch Metadata §2.1) in which a browser neither runs nor applies it. */
const USES: ReadonlySet<unknown> = new Set([undefined, 'empty', 'document', 'image', 'audio', 'video']);

/** Refuses a file to a page that would run or apply it, as a script for example. @throws Problem `bad_request` */
export function checkFileUse(headers: IncomingHttpHeaders): void {
  if (!USES.has(headers['sec-fetch-dest']))
    throw new Problem(
      'bad_request',
      'A page can show or download this file, but not run, apply or frame it.',
    );
}
