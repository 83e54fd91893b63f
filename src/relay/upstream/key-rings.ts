import { type BotSettings, keysOf, patternsFor } from '../../bots/bot-settings.ts';
import type { Secret } from '../../secret.ts';
import { type KeyRing, type KeyStates, keyRing } from './key-ring.ts';

/** Whether the bot service has accepted or refused a key of a ring. */
export interface KeyUse {
  /** The ring's name. */
  readonly ring: string;
  readonly fingerprint: string;
  readonly outcome: 'worked' | 'refused';
}

/** The rings of all bots. */
export interface KeyRings {
  /** The ring of the bot `namespace/bot`, which must be on the allow-list. */
  ringOf(bot: string): KeyRing;
  /** All rings, in the order of the configuration. */
  all(): readonly KeyRing[];
  /** Uses other settings from now on; keys that stay keep their state. */
  use(settings: BotSettings): void;
  /** Lets the next messages try all refused keys at their configured positions at once. */
  tryRefusedAgain(): void;
  /** Every key of every ring. */
  keys(): readonly Secret[];
}

export interface KeyRingsOptions {
  readonly settings: BotSettings;
  /** The allow-list. */
  readonly bots: readonly string[];
  /** Called whenever the bot service has accepted or refused a key. */
  readonly observe?: (use: KeyUse) => void;
  readonly now?: () => number;
}

/** For how many bots the ring is remembered: with a pattern on the allow-list, clients choose the names of bots. */
const MAX_REMEMBERED = 1_000;

/** Makes a ring for each bot or pattern that the allow-list or the settings name. */
export function keyRings({ settings, bots, observe = () => {}, now }: KeyRingsOptions): KeyRings {
  let current = settings;
  let allKeys: readonly Secret[] = [];
  let rings = new Map<string, ReturnType<typeof observed>>();
  const ringsOfBots = new Map<string, KeyRing>();

  function use(next: BotSettings): void {
    const names = [...new Set([...bots, ...Object.keys(next.own)])];
    const before = rings;
    rings = new Map(
      names.map((name) => {
        const keys = keysOf(next, name);
        const states = before.get(name)?.states;
        return [name, observed({ name, keys, before: states, ...(now && { now }) }, observe)];
      }),
    );
    current = next;
    ringsOfBots.clear();
    allKeys = [...new Set([...rings.values()].flatMap(({ keys }) => keys))];
  }

  function ringOf(bot: string): KeyRing {
    const keys = keysOf(current, bot);
    // Several patterns may match: the ring is that of the pattern with this bot's keys.
    const name = patternsFor(bot).find((pattern) => rings.get(pattern)?.keys === keys);
    return rings.get(name as string) as KeyRing;
  }

  use(settings);
  return {
    ringOf(bot) {
      const known = ringsOfBots.get(bot);
      if (known) return known;
      const ring = ringOf(bot);
      if (ringsOfBots.size >= MAX_REMEMBERED) ringsOfBots.clear();
      ringsOfBots.set(bot, ring);
      return ring;
    },
    all: () => [...rings.values()],
    use,
    tryRefusedAgain() {
      for (const ring of rings.values()) ring.tryRefusedAgain();
    },
    keys: () => allKeys,
  };
}

function observed(
  options: Parameters<typeof keyRing>[0],
  observe: (use: KeyUse) => void,
): KeyRing & { readonly states: KeyStates } {
  const ring = keyRing(options);
  const tell = ({ fingerprint }: Secret, outcome: KeyUse['outcome']) =>
    observe({ ring: ring.name, fingerprint, outcome });
  return {
    ...ring,
    worked(key) {
      tell(key, 'worked');
      return ring.worked(key);
    },
    refused(key) {
      tell(key, 'refused');
      ring.refused(key);
    },
  };
}
