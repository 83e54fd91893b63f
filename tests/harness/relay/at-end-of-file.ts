/** Jest's `afterAll`. There is none in a benchmark, where nothing is called. */
const { afterAll } = globalThis as { readonly afterAll?: (end: () => unknown) => void };

/**
 * Has `end` called and awaited when the test file is over, whatever has failed in it. Call it while the file is loaded:
 * the first one that is loaded ends first.
 */
export function atEndOfFile(end: () => unknown): void {
  afterAll?.(end);
}
