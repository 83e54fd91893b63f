import { keyPart } from '../storage/redis-key.ts';

/** Whom a message counts for where places are few: names without white space that show nobody's id or address. */
export interface Holders {
  /** The user, whatever the session. */
  readonly user: string;
  /** Only of guests, who can be as many users as they like: all that come from one address. */
  readonly address?: string;
}

export interface HoldersOptions {
  /** Where users are known: the same id is somebody else elsewhere. */
  readonly realm: string;
  readonly guests: boolean;
}

/** Makes the function that names the holders of a message, by its user's id and its client's address. */
export function nameHolders({ realm, guests }: HoldersOptions): (userId: string, address: string) => Holders {
  return (userId, address) => ({
    user: keyPart(`${realm} ${userId}`),
    ...(guests && { address: keyPart(`address ${address}`) }),
  });
}
