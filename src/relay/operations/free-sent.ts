import type { ClientRequest } from 'node:http';
import type { Readable } from 'node:stream';
import { freeBytes } from '../../http/body.ts';

/**
 * Frees the chunks of `body` as soon as the operating system has taken them. `body` may be piped into `request` before
 * or after: a chunk is freed only if those behind it are all that `request` still holds.
 */
export function freeSent(body: Readable, request: ClientRequest): void {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  const free = () => {
    // With the framing of chunks, so that it is never too low.
    const waiting = request.writableLength;
    let count = 0;
    for (const bytes of kept) {
      if (keptBytes - bytes.length < waiting) break;
      keptBytes -= bytes.length;
      count += 1;
      freeBytes(bytes);
    }
    kept = kept.slice(count);
  };
  body.on('data', (bytes: Buffer) => {
    // Before this chunk is counted, since it may not have been written.
    free();
    kept.push(bytes);
    keptBytes += bytes.length;
  });
  request.on('drain', free);
}
