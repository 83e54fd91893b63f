import type { UpstreamRequest } from '../upstream/send.ts';
import type { HeldBytes } from './held-bytes.ts';

/** A larger body is not kept, in bytes: its stream can't be resumed. */
const MAX_BODY_BYTES = 65_536;

/** A request that is kept for as long as its stream may have to be resumed. */
export interface KeptRequest {
  /** Makes the request. Its body is made anew each time that it is read. */
  request(): UpstreamRequest;
  /** Counts its body no longer. May be called again. */
  release(): void;
}

/** Keeps a copy of a request without a key, or returns why it can't. */
export function keepRequest(
  { path, headers, body }: UpstreamRequest,
  held: HeldBytes,
): KeptRequest | 'large_body' | 'no_room' {
  if (body.length > MAX_BODY_BYTES) return 'large_body';
  if (!held.take(body.length)) return 'no_room';
  // The body may be a part of a larger buffer, which a reference would keep in memory. A text costs less than a buffer.
  const copy = body.toString('latin1');
  let isHeld = true;
  return {
    request: () => ({
      path,
      headers,
      get body() {
        return Buffer.from(copy, 'latin1');
      },
    }),
    release() {
      if (isHeld) held.release(copy.length);
      isHeld = false;
    },
  };
}
