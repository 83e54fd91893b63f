import type { LeaseReturns } from './lease-returns.ts';
import { batches, type Lease, type LeaseScripts } from './lease-scripts.ts';

/** The leases that this instance holds. */
export interface HeldLeases {
  has(id: string): boolean;
  /** Holds a lease, and renews it until it is released. */
  hold(lease: Lease): void;
  /** Gives a lease back, held or not. */
  release(lease: Lease): void;
}

export interface HeldLeasesOptions {
  readonly scripts: LeaseScripts;
  readonly returns: LeaseReturns;
  /** How often the leases are renewed, in ms. */
  readonly renewMs: number;
}

/** Renews the held leases, as long as there are any. */
export function heldLeases({ scripts, returns, renewMs }: HeldLeasesOptions): HeldLeases {
  /** The key of the holder, by the id of each lease. */
  const held = new Map<string, string>();
  let timer: NodeJS.Timeout | undefined;

  async function renewAll(): Promise<void> {
    for (const batch of batches(held)) {
      // Leave out leases that were released while the batch before was renewed.
      const leases = batch.filter(([id]) => held.has(id));
      try {
        await scripts.renew(leases);
      } finally {
        // A lease that was released meanwhile may have been renewed after its release.
        for (const lease of leases) if (!held.has(lease[0])) returns.giveBack(lease);
      }
    }
  }

  return {
    has: (id) => held.has(id),
    hold([id, key]) {
      held.set(id, key);
      // The next interval tries again.
      timer ??= setInterval(() => renewAll().catch(() => {}), renewMs).unref();
    },
    release(lease) {
      held.delete(lease[0]);
      if (held.size === 0) {
        clearInterval(timer);
        timer = undefined;
      }
      returns.giveBack(lease);
    },
  };
}
