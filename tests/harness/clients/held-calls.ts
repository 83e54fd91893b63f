/** A `fetch` whose answers from some paths are held until the test lets them go. */
export interface HeldCalls {
  readonly fetch: typeof fetch;
  /** Holds the answers to calls whose method and address contain `part`, from now on. The returned function lets all of them go. */
  hold(part: string): () => void;
  /** The addresses that were called, in order, also those whose answers are held. */
  readonly called: readonly string[];
}

/** A `fetch` that holds nothing yet. */
export function heldCalls(): HeldCalls {
  const gates = new Map<string, Promise<void>>();
  const called: string[] = [];
  return {
    called,
    async fetch(url, init) {
      const address = String(url);
      called.push(address);
      const aborted = new Promise<void>((resolve) =>
        init?.signal?.addEventListener('abort', () => resolve(), { once: true }),
      );
      const held = [...gates].filter(([part]) => `${init?.method ?? 'GET'} ${address}`.includes(part));
      const response = await fetch(url, init);
      for (const [, gate] of held) await Promise.race([gate, aborted]);
      init?.signal?.throwIfAborted();
      return response;
    },
    hold(part) {
      const { promise: gate, resolve: open } = Promise.withResolvers<void>();
      gates.set(part, gate);
      return () => {
        gates.delete(part);
        open();
      };
    },
  };
}
