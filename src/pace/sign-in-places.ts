import { Problem } from '../errors.ts';

/** Places for sign-ins that wait or whose password is being checked. */
export interface SignInPlaces {
  /** @throws Problem `busy` if there is no place for one more from `address` */
  refuseIfFull(address: string): void;
  /** Takes a place; returns the function that gives it back; call it once. @throws Problem `busy` if there is none */
  take(address: string): () => void;
}

/** How many sign-ins may wait or be checked at once. */
const MAX_SIGN_INS = 100;
/** How many of them may come from one address, so that others find a place. */
const MAX_FROM_ONE_ADDRESS = 75;
/** About half of the sign-ins are done after this time. */
const RETRY_AFTER_SECONDS = 10;

/** The places of this process. */
export function signInPlaces(): SignInPlaces {
  /** The address of each sign-in. */
  const signIns: string[] = [];

  function refuseIfFull(address: string): void {
    const fromAddress = signIns.filter((other) => other === address).length;
    if (signIns.length >= MAX_SIGN_INS || fromAddress >= MAX_FROM_ONE_ADDRESS) throw busy();
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

/** The problem for a sign-in that finds no place, or waits too long. */
export function busy(): Problem {
  const detail = 'Too many people are signing in right now; wait and try again.';
  return new Problem('busy', detail, { retryAfter: RETRY_AFTER_SECONDS });
}
