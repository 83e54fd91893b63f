/** A `fetch` whose calls of some paths are held until the test lets them go. */
export interface HeldCalls {
  readonly fetch: typeof fetch;
  /** Holds calls whose address contains `part`, from now on. The returned function lets all of them go. */
  hold(part: string): () => void;
  /** The addresses that were called, in order, also those that are held. */
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
      for (const [part, gate] of gates) if (address.includes(part)) await Promise.race([gate, aborted]);
      return fetch(url, init);
    },
    hold(part) {
      let open: () => void = () => {};
      const gate = new Promise<void>((resolve) => {
        open = resolve;
      });
      gates.set(part, gate);
      return () => {
        gates.delete(part);
        open();
      };
    },
  };
}
