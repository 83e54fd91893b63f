import { keyPart } from '../storage/redis-key.ts';

/**
 * For whom a message counts in limits, so that slots and places are shared out fairly. The names are hashes, which show
 * no user id and no address. They contain no space, because keys join them with one.
 */
export interface Holders {
  /** The user, in all sessions together. */
  readonly user: string;
  /** The client's IP address, for guests only, since one client can become any number of guests. */
  readonly address?: string;
}

/** The names of those for whom a message counts: the user, and the address if there is one. */
export function namesOf({ user, address }: Holders): string[] {
  return address === undefined ? [user] : [user, address];
}

/** The same holders under other names, for what is limited apart from messages. `kind` contains no space. */
export function holdersApart(kind: string, { user, address }: Holders): Holders {
  return { user: `${kind}:${user}`, ...(address !== undefined && { address: `${kind}:${address}` }) };
}

export interface HoldersOptions {
  /** Where the user ids come from: the same id in another realm is another user. */
  readonly realm: string;
  readonly guests: boolean;
}

/** Names the holders of a message by the user's id and the client's address, which is asked for only if it counts. */
export type HoldersOf = (userId: string, address: () => string) => Holders;

/** Makes the function. */
export function nameHolders({ realm, guests }: HoldersOptions): HoldersOf {
  return (userId, address) => {
    const user = keyPart(`${realm} ${userId}`);
    return guests ? { user, address: keyPart(`address ${address()}`) } : { user };
  };
}
