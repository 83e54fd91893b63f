import type { Secret } from '../../secret.ts';

/** How long a refused key is tried last, in ms. After that, one message tries it at its configured position again. */
export const REFUSED_FOR_MS = 30_000;

/** The keys of a bot, and whether the bot service has accepted or refused each. */
export interface KeyRing {
  /** As the configuration names the bot: `namespace/bot`, or a pattern. */
  readonly name: string;
  /** In the order of the configuration. */
  readonly keys: readonly Secret[];
  /**
   * All keys, in the order in which a message should try them now. Refused keys come last. But once in
   * `REFUSED_FOR_MS`, the first of them is at its configured position, for one message.
   */
  order(): readonly Secret[];
  /** The bot service has accepted the key. Returns whether this is new: its last answer was no acceptance. */
  worked(key: Secret): boolean;
  /** The bot service has refused the key. */
  refused(key: Secret): void;
  /** Lets the next messages try refused keys at their configured position at once. */
  tryRefusedAgain(): void;
}

/** The state of one key of a ring. */
interface KeyState {
  standing: 'unknown' | 'worked' | 'refused';
  /** When a refused key may be tried at its configured position, by the ring's clock in ms. */
  nextTryAt: number;
}

/** The states of keys, by fingerprint; a new ring can take them over. */
export type KeyStates = ReadonlyMap<string, KeyState>;

export interface KeyRingOptions {
  readonly name: string;
  readonly keys: readonly Secret[];
  /** The states of the previous ring, for keys that this ring has too; they are shared with it. */
  readonly before?: KeyStates | undefined;
  /** A monotonic clock, in ms. */
  readonly now?: () => number;
}

/** Makes a ring; `states` is for the next ring. */
export function keyRing(options: KeyRingOptions): KeyRing & { readonly states: KeyStates } {
  const { name, keys, before, now = () => performance.now() } = options;
  const states = new Map(
    keys.map(({ fingerprint }) => {
      const state: KeyState = before?.get(fingerprint) ?? { standing: 'unknown', nextTryAt: 0 };
      return [fingerprint, state];
    }),
  );
  const stateOf = ({ fingerprint }: Secret) => states.get(fingerprint) as KeyState;
  const isRefused = (key: Secret) => stateOf(key).standing === 'refused';
  return {
    name,
    keys,
    states,
    order() {
      if (!keys.some(isRefused)) return keys;
      const refused = keys.filter(isRefused);
      const others = keys.filter((key) => !isRefused(key));
      // If all keys were refused, all are tried in the configured order.
      if (!others[0]) return keys;
      const inFront = keys.slice(0, keys.indexOf(others[0]));
      const due = inFront.find((key) => stateOf(key).nextTryAt <= now());
      if (!due) return [...others, ...refused];
      // Only this message tries it; the others leave it last meanwhile.
      stateOf(due).nextTryAt = now() + REFUSED_FOR_MS;
      return [due, ...others, ...refused.filter((key) => key !== due)];
    },
    worked(key) {
      const state = stateOf(key);
      const isNew = state.standing !== 'worked';
      state.standing = 'worked';
      return isNew;
    },
    refused(key) {
      Object.assign(stateOf(key), { standing: 'refused', nextTryAt: now() + REFUSED_FOR_MS });
    },
    tryRefusedAgain() {
      for (const key of keys) stateOf(key).nextTryAt = now();
    },
  };
}
