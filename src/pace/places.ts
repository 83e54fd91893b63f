import { Problem } from '../errors.ts';
import type { Holders } from './holders.ts';
import type { StreamLeases } from './stream-leases.ts';

/** How many messages may be open or waiting at once. */
export interface StreamCaps {
  readonly perUser: number;
  /** For all guests from one address together. */
  readonly perAddress: number;
}

/**
 * Takes a place for one more open message; returns the function that gives it back.
 * @throws Problem `too_many_streams`; `session_store_unavailable` if the places cannot be counted
 */
export type TakePlace = (holders: Holders) => Promise<() => void>;

/**
 * Limits the messages that are open or waiting at once: at most `perUser` of one user, and at most `perAddress` of all
 * guests from one address. `leases` counts them.
 */
export function places(leases: StreamLeases, { perUser, perAddress }: StreamCaps): TakePlace {
  function take(holder: string, max: number, subject: string): Promise<() => void> {
    return leases.acquire(holder, max).then((lease) => {
      if (lease) return lease.release;
      throw new Problem('too_many_streams', `${subject} ${max} open streams.`, { retryAfter: 1 });
    });
  }

  async function takeBoth(user: string, address: string): Promise<() => void> {
    // Asked together, in one round trip.
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
