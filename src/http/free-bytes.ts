/**
 * Frees the memory of bytes that nobody reads any more; they then have no length. Otherwise V8 finds out by going
 * through its whole heap for every few dozen MB. Does nothing if they are a part of something larger, such as the pool
 * of `Buffer`.
 */
export function freeBytes(bytes: Buffer): void {
  const { buffer, length } = bytes;
  if (length > 0 && length === buffer.byteLength && 'transfer' in buffer) buffer.transfer(0);
}
