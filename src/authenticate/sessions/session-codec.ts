import { z } from 'zod';
import type { Sealer } from './seal.ts';
import type { Session } from './session.ts';
import { setsOf } from './session-script.ts';

/** The encrypted part of a session. */
const sealedPart = z.object({
  user: z.object({ id: z.string(), name: z.string() }),
  startedAt: z.number(),
  absoluteExpiresAt: z.number(),
  providerSession: z.string().optional(),
  idToken: z.string().optional(),
});
/** The idle limit is not encrypted, since the scripts in Redis read and move it. */
const sealedSession = z.object({ v: z.literal(1), idleExpiresAt: z.number(), sealed: z.string() });
/** The names of its sets are not encrypted either: a removed session is taken out of them. */
const setsPart = z.object({ sets: z.array(z.string()) });

/** Turns sessions into texts for a store, and back. */
export interface SessionCodec {
  /** The text of a session. The user, the absolute limit and the provider's values are encrypted for this key. */
  encode(key: string, session: Session): string;
  /**
   * The session of a text that is stored under this key; undefined if it cannot be read, or was written for another
   * key.
   */
  decode(key: string, text: string): Session | undefined;
  /** The names of the sets in which the session of a text is; none if it cannot be read. */
  setsOf(text: string): string[];
  /** Forgets what was decrypted of the session with this key. */
  forget(key: string): void;
}

/** How many sessions are remembered decrypted, those read last: one in use is read with each request. */
const MAX_REMEMBERED = 1_000;

interface OpenedPart {
  readonly sealed: string;
  readonly part: z.infer<typeof sealedPart>;
}

/** Makes the codec; `sealer` encrypts and decrypts for it. */
export function sessionCodec(sealer: Sealer): SessionCodec {
  /** In the order of their last reading. */
  const opened = new Map<string, OpenedPart>();

  function openPart(key: string, sealed: string): OpenedPart['part'] | undefined {
    const known = opened.get(key);
    const part = known?.sealed === sealed ? known.part : openAnew(key, sealed);
    opened.delete(key);
    if (part) opened.set(key, { sealed, part });
    const [oldest] = opened.size > MAX_REMEMBERED ? opened.keys() : [];
    if (oldest !== undefined) opened.delete(oldest);
    return part;
  }

  function openAnew(key: string, sealed: string): OpenedPart['part'] | undefined {
    const text = sealer.open(sealed, key);
    return text === undefined ? undefined : sealedPart.safeParse(parse(text)).data;
  }

  return {
    encode(key, { idleExpiresAt, ...session }) {
      const { user, providerSession } = session;
      const sets = setsOf({ userId: user.id, providerSession });
      const sealed = sealer.seal(JSON.stringify(session, wellFormed), key);
      return JSON.stringify({ v: 1, idleExpiresAt, sets, sealed }, wellFormed);
    },
    decode(key, text) {
      const outer = sealedSession.safeParse(parse(text)).data;
      const part = outer && openPart(key, outer.sealed);
      return outer && part && { ...part, idleExpiresAt: outer.idleExpiresAt };
    },
    setsOf: (text) => setsPart.safeParse(parse(text)).data?.sets ?? [],
    forget: (key) => void opened.delete(key),
  };
}

/** Replaces half a surrogate pair: Redis cannot parse JSON with one, and would not find the user. */
function wellFormed(_key: string, value: unknown): unknown {
  return typeof value === 'string' ? value.toWellFormed() : value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
