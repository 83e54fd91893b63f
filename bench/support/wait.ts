/** Resolves after `ms`. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Resolves when `condition` is true; it is checked every few ms. @throws Error after `timeoutMs` */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  const givingUpAt = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > givingUpAt) throw new Error(`not true after ${timeoutMs} ms: ${condition}`);
    await sleep(5);
  }
}
