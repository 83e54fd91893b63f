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

/** Renews the leases that are held, as long as there are any. */
export function heldLeases({ scripts, returns, renewMs }: HeldLeasesOptions): HeldLeases {
  /** The holder's key of each lease. */
  const held = new Map<string, string>();
  let timer: NodeJS.Timeout | undefined;

  async function renewAll(): Promise<void> {
    for (const batch of batches(held)) {
      // Not those that were released while the batch before was under way.
      const leases = batch.filter(([id]) => held.has(id));
      try {
        await scripts.renew(leases);
      } finally {
        // What was released meanwhile may have been renewed after that.
        for (const lease of leases) if (!held.has(lease[0])) returns.giveBack(lease);
      }
    }
  }

  return {
    has: (id) => held.has(id),
    hold([id, key]) {
      held.set(id, key);
      // What fails is done next time.
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
