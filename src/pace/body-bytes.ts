import { Problem } from '../errors.ts';
import { type Holders, namesOf } from './holders.ts';
import { tooManyAttempts } from './request-limits.ts';

/** Counts the bytes of one body, from its arrival until it is sent or refused. */
export interface BodyCount {
  /** @throws Problem `too_many_attempts` if its user has sent too many, `busy` if too many are under way */
  readonly count: (bytes: number) => void;
  /** The body is not needed any more. May be called again. */
  readonly release: () => void;
}

export type CountBody = (holders: Holders) => BodyCount;

/** How many bytes of bodies a user may send in a second, at least, and for how many seconds of that at once. */
const LEAST_PER_SECOND = 262_144;
const SECONDS_AT_ONCE = 4;
/** How many users and addresses are remembered. */
const MAX_BUCKETS = 10_000;

/** How many bytes of bodies may be under way, at least. */
const LEAST_ROOM = 2 ** 26;
/** Larger bodies may take three quarters of the room: however many come, there is room for small ones. */
const SMALL_BYTES = 16_384;
const SHARE_OF_LARGE = 0.75;

/**
 * Limits the bytes of bodies, in the memory of this process: those of each user by a token bucket, also of each address
 * of guests, and all that are under way. Both limits grow with the largest body that is allowed.
 */
export function bodyBytes(maxBodyBytes: number): CountBody {
  const perSecond = Math.max(LEAST_PER_SECOND, maxBodyBytes);
  const takeFrom = buckets(perSecond, SECONDS_AT_ONCE * perSecond);
  const room = Math.max(LEAST_ROOM, SECONDS_AT_ONCE * maxBodyBytes);
  let underWay = 0;
  return function countBody(holders) {
    let own = 0;
    return {
      count(bytes) {
        const mayTake = own + bytes > SMALL_BYTES ? room * SHARE_OF_LARGE : room;
        if (underWay + bytes > mayTake)
          throw new Problem('busy', 'Too much is being sent to the relay.', { retryAfter: 1 });
        takeFrom(namesOf(holders), bytes);
        own += bytes;
        underWay += bytes;
      },
      release() {
        underWay -= own;
        own = 0;
      },
    };
  };
}

interface Bucket {
  /** How many bytes were left, at `at` in ms. */
  readonly bytes: number;
  readonly at: number;
}

/** Takes bytes from the buckets of all these names, or from none. @throws Problem `too_many_attempts` */
function buckets(perSecond: number, atOnce: number): (names: readonly string[], bytes: number) => void {
  // In the order of their last use. The first one is forgotten first, which makes it full again.
  const known = new Map<string, Bucket>();
  const leftIn = (name: string, now: number) => {
    const { bytes, at } = known.get(name) ?? { bytes: atOnce, at: now };
    return Math.min(atOnce, bytes + ((now - at) / 1000) * perSecond);
  };
  return function take(names, bytes) {
    const now = performance.now();
    const left = names.map((name) => leftIn(name, now));
    const missing = bytes - Math.min(...left);
    if (missing > 0)
      throw tooManyAttempts('Too much was sent from here; wait and try again.', (missing / perSecond) * 1000);
    for (const [n, name] of names.entries()) {
      known.delete(name);
      known.set(name, { bytes: (left[n] as number) - bytes, at: now });
    }
    while (known.size > MAX_BUCKETS) known.delete(known.keys().next().value as string);
  };
}
