import type { Secret } from '../../secret.ts';

/** How long a key that was refused is tried last, in ms; then one message tries it in its own place again. */
export const REFUSED_FOR_MS = 30_000;

/** The keys of a bot, which remembers what the bot service said to each. */
export interface KeyRing {
  /** As the configuration names the bot: `namespace/bot`, or a pattern. */
  readonly name: string;
  /** In the order of the configuration. */
  readonly keys: readonly Secret[];
  /**
   * All keys, in the order in which a message should try them now. Keys that were refused come last; but the
   * first of them is in its own place again for one message in `REFUSED_FOR_MS`.
   */
  order(): readonly Secret[];
  /** The bot service has taken the key. Returns whether that is news: it had not, or had refused the key since. */
  worked(key: Secret): boolean;
  /** The bot service has refused the key. */
  refused(key: Secret): void;
  /** Has refused keys tried in their own place by the next message, however short ago they were refused. */
  retry(): void;
}

/** What is known of one key of a ring. */
interface KeyState {
  standing: 'unknown' | 'worked' | 'refused';
  /** When a key that was refused may be tried in its own place, by the ring's clock in ms. */
  nextTryAt: number;
}

/** What is known of each key, by fingerprint; a ring with other keys can go on from it. */
export type KeyStates = ReadonlyMap<string, KeyState>;

export interface KeyRingOptions {
  readonly name: string;
  readonly keys: readonly Secret[];
  /** What the ring before this one knew. Keys that it had as well are shared with it; others are new. */
  readonly before?: KeyStates | undefined;
  /** A monotonic clock, in ms. */
  readonly now?: () => number;
}

/** Makes a ring; `states` is what the next one can go on from. */
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
      // Where all were refused there is nothing better than to try them all.
      if (!others[0]) return keys;
      const inFront = keys.slice(0, keys.indexOf(others[0]));
      const due = inFront.find((key) => stateOf(key).nextTryAt <= now());
      if (!due) return [...others, ...refused];
      // Taken by this message, whatever becomes of it: the others do without meanwhile.
      stateOf(due).nextTryAt = now() + REFUSED_FOR_MS;
      return [due, ...others, ...refused.filter((key) => key !== due)];
    },
    worked(key) {
      const state = stateOf(key);
      const isNews = state.standing !== 'worked';
      state.standing = 'worked';
      return isNews;
    },
    refused(key) {
      Object.assign(stateOf(key), { standing: 'refused', nextTryAt: now() + REFUSED_FOR_MS });
    },
    retry() {
      for (const key of keys) stateOf(key).nextTryAt = now();
    },
  };
}
