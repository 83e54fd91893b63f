import { beforeAll, test } from '@jest/globals';

/**
 * Registers a test for each of `cases` and starts all of them at once, or so many at a time: whenever one is over,
 * the next one starts. It is for cases that mostly wait.
 */
export function testSideBySide(
  cases: readonly (readonly [title: string, run: () => Promise<void>])[],
  atOnce = cases.length,
): void {
  const runs: Promise<void>[] = [];
  beforeAll(() => {
    const waiting = cases.map(([, run]) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      // The test that awaits a run reports its error.
      promise.catch(() => {});
      runs.push(promise);
      return () => run().then(resolve, reject);
    });
    const runNext = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) await next();
    };
    for (let n = 0; n < atOnce; n += 1) void runNext();
  });
  test.each(cases.map(([title], index) => ({ title, index })))('$title', async ({ index }) => {
    await runs[index];
  });
}
