import { beforeAll, test } from '@jest/globals';

/** A guard against hanging, in ms: the cases of a file together. */
const PATIENCE_MS = 300_000;

/**
 * Registers a test for each of `cases` and runs all of them at once, or so many at a time: whenever one is over, the
 * next one starts. It is for cases that mostly wait. They run before the first test, which Jest demands: between two
 * tests, no module can be imported.
 */
export function testSideBySide(
  cases: readonly (readonly [title: string, run: () => Promise<void>])[],
  atOnce = cases.length,
): void {
  const results: PromiseSettledResult<void>[] = [];
  beforeAll(async () => {
    const waiting = [...cases.entries()];
    const runNext = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const [index, [, run]] = next;
        [results[index]] = (await Promise.allSettled([run()])) as [PromiseSettledResult<void>];
      }
    };
    await Promise.all(Array.from({ length: atOnce }, runNext));
  }, PATIENCE_MS);
  test.each(cases.map(([title], index) => ({ title, index })))('$title', ({ index }) => {
    const result = results[index];
    if (result?.status !== 'fulfilled') throw result?.reason ?? new Error('The case was not run to its end.');
  });
}
