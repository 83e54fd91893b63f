/**
 * Makes the function that runs pieces of work, at most `most` of them at a time, the others in the order in which they
 * came. Resolves or rejects as the work does.
 */
export function fewAtOnce(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let places = most;
  return async function run(work) {
    if (places > 0) places -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // The place goes from hand to hand: nobody who comes now gets in front of those who wait.
      const next = waiting.shift();
      if (next) next();
      else places += 1;
    }
  };
}
