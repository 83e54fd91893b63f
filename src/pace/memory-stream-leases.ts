import type { StreamLeases } from './places.ts';

/** The places that are taken at one instance. */
export function memoryStreamLeases(): StreamLeases {
  const open = new Map<string, number>();

  function free(holder: string): void {
    const left = (open.get(holder) ?? 1) - 1;
    if (left > 0) open.set(holder, left);
    else open.delete(holder);
  }

  return {
    async acquire(holder, max) {
      const count = open.get(holder) ?? 0;
      if (count >= max) return undefined;
      open.set(holder, count + 1);
      let isHeld = true;
      return {
        release() {
          if (isHeld) free(holder);
          isHeld = false;
        },
      };
    },
    async close() {},
  };
}
