import { Problem } from '../errors.ts';

/** Places for sign-ins that wait or are checked. */
export interface SignInPlaces {
  /** @throws Problem `busy` if there is no place for one more from `address` */
  refuseIfFull(address: string): void;
  /** Takes a place; returns what gives it back, to be called once. @throws Problem `busy` if there is none */
  take(address: string): () => void;
}

/** How many sign-ins wait or are checked. */
const MAX_SIGN_INS = 100;
/** How many of them come from one address, so that others find a place. */
const MAX_FROM_ONE_ADDRESS = 75;
/** In about this time half of them are done. */
const RETRY_AFTER_SECONDS = 10;

/** Places in this process: so many in all, and so many of them from one address. */
export function signInPlaces(): SignInPlaces {
  /** The address of each that waits or is checked. */
  const signIns: string[] = [];

  function refuseIfFull(address: string): void {
    const fromThere = signIns.filter((other) => other === address).length;
    if (signIns.length >= MAX_SIGN_INS || fromThere >= MAX_FROM_ONE_ADDRESS) throw busy();
  }

  return {
    refuseIfFull,
    take(address) {
      refuseIfFull(address);
      signIns.push(address);
      return () => void signIns.splice(signIns.indexOf(address), 1);
    },
  };
}

/** What a client is told whose sign-in finds no place, or no turn in time. */
export function busy(): Problem {
  const detail = 'Too many people sign in at this moment; wait and try again.';
  return new Problem('busy', detail, { retryAfter: RETRY_AFTER_SECONDS });
}
