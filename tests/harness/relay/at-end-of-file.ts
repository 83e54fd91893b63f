/** Jest's `afterAll`. A benchmark uses the harness without Jest. */
const { afterAll } = globalThis as { readonly afterAll?: (end: () => unknown) => void };

/** Has `end` called and awaited when the test file is over, whatever has failed in it. Call it while the file is loaded. */
export function atEndOfFile(end: () => unknown): void {
  afterAll?.(end);
}
