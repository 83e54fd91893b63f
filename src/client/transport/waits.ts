/** Starts a timer, in ms, that does not keep a process of Node.js alive. */
export function inBackground(act: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(act, ms);
  Object(timer).unref?.();
  return timer;
}

/** Resolves after so many ms. It does not keep a process of Node.js alive. */
export function after(ms: number): Promise<void> {
  return new Promise((resolve) => void inBackground(resolve, ms));
}

/** Rejects with the reason of `signal` when that is aborted. */
export function abortOf(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
  );
}

/** Resolves after so many ms, or as soon as `signal` is aborted or the session has `ended`. */
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

/** A pause that is longer by up to a half: a restart of the relay cuts the streams of all pages at once. */
export function spread(ms: number): number {
  return ms * (1 + Math.random() / 2);
}
