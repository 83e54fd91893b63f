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

/** Rejects with its reason when `signal` is aborted. */
export function abortOf(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
  );
}

/** Waits so many ms, or until `signal` is aborted or the session has `ended`. */
export function pause(
  ms: number,
  { signal, ended }: { signal: AbortSignal; ended: AbortSignal },
): Promise<void> {
  return new Promise((resolve) => {
    const end = () => resolve(clearTimeout(timer));
    const timer = setTimeout(end, ms);
    signal.onabort = end;
    ended.addEventListener('abort', end, { signal });
    if (ended.aborted) end();
  });
}
