/** Resolves after `ms`. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Resolves as soon as `condition` holds, looked at every few ms. @throws Error after `timeoutMs` */
export async function waitUntil(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  const givingUpAt = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > givingUpAt)
      throw new Error(`nothing came of it in ${timeoutMs} ms: ${condition}`);
    await sleep(5);
  }
}
