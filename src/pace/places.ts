import { Problem } from '../errors.ts';
import type { Holders } from './holders.ts';

/** A place of a holder, which is taken until it is given back. */
export interface StreamLease {
  /** Gives the place back. Never fails, and may be called again. */
  release(): void;
}

/** Counts the places that each holder has taken, in this process's memory, or in Redis for all instances. */
export interface StreamLeases {
  /**
   * Takes one more place for the holder; undefined if it already has `max`.
   * @throws Problem `session_store_unavailable` if the places cannot be counted
   */
  acquire(holder: string, max: number): Promise<StreamLease | undefined>;
  /** Resolves when Redis knows of all places that were given back. Acquire nothing after this call. */
  close(): Promise<void>;
}

/** How many messages, live streams or operations may be open or waiting at once. */
interface StreamCaps {
  readonly perUser: number;
  /** For all guests from one address together. */
  readonly perAddress: number;
}

/**
 * Takes a place for one more of them; returns the function that gives it back.
 * @throws Problem `too_many_streams`; `session_store_unavailable` if the places cannot be counted
 */
type TakePlace = (holders: Holders) => Promise<() => void>;

/**
 * Limits the messages, live streams or operations that are open or waiting at once: at most `perUser` of one user, and at
 * most `perAddress` of all guests from one address. `leases` counts them.
 */
export function places(leases: StreamLeases, { perUser, perAddress }: StreamCaps): TakePlace {
  function take(holder: string, max: number, subject: string): Promise<() => void> {
    return leases.acquire(holder, max).then((lease) => {
      if (lease) return lease.release;
      throw new Problem('too_many_streams', `${subject} ${max} open streams.`, { retryAfter: 1 });
    });
  }

  async function takeBoth(user: string, address: string): Promise<() => void> {
    // At the same time, in one round trip.
    const taken = await Promise.allSettled([
      take(user, perUser, 'You already have'),
      take(address, perAddress, 'Guests from here already have'),
    ]);
    const release = () => {
      for (const { value } of taken.filter((one) => one.status === 'fulfilled')) value();
    };
    const refused = taken.find((one) => one.status === 'rejected');
    if (!refused) return release;
    release();
    throw refused.reason;
  }

  return ({ user, address }) =>
    address === undefined ? take(user, perUser, 'You already have') : takeBoth(user, address);
}
