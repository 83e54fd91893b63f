/** A timer, in ms, for which Node.js does not wait before it ends. */
export function inBackground(act: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(act, ms);
  Object(timer).unref?.();
  return timer;
}

/** Resolves after so many ms, for which Node.js does not wait before it ends. */
export function after(ms: number): Promise<void> {
  return new Promise((resolve) => void inBackground(resolve, ms));
}
