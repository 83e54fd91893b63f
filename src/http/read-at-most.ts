/**
 * All bytes of `body`; `undefined` if they are more than `maxBytes`: then the rest is not read, and `body` is closed.
 * Rejects with the error of `body`.
 */
export async function readAtMost(body: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    // Leaving the loop closes the body.
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}
