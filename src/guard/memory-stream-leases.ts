import type { StreamLeases } from './stream-leases.ts';

/** At most `max` streams of one session, for one instance. */
export function memoryStreamLeases(max: number): StreamLeases {
  const open = new Map<string, number>();

  function free(sessionId: string): void {
    const left = (open.get(sessionId) ?? 1) - 1;
    if (left > 0) open.set(sessionId, left);
    else open.delete(sessionId);
  }

  return {
    async acquire(sessionId) {
      const count = open.get(sessionId) ?? 0;
      if (count >= max) return undefined;
      open.set(sessionId, count + 1);
      let held = true;
      return {
        release() {
          if (held) free(sessionId);
          held = false;
        },
      };
    },
    async close() {},
  };
}
