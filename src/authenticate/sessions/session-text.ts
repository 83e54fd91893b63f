import { z } from 'zod';
import type { Sealer } from './seal.ts';
import type { Session } from './session.ts';
import { PROVIDER_PREFIX, USER_PREFIX } from './session-script.ts';

const user = z.object({ id: z.string(), name: z.string() });
const held = {
  user,
  absoluteExpiresAt: z.number(),
  providerSession: z.string().optional(),
  idToken: z.string().optional(),
};
/** What is sealed. */
const sealedPart = z.object(held);
/** What scripts in Redis read and move stands beside the seal. */
const sealedSession = z.object({ v: z.literal(2), idleExpiresAt: z.number(), sealed: z.string() });
/** As version 0.1 of the relay stores sessions; to be read until version 0.3. */
const openSession = z.object({ v: z.literal(1), idleExpiresAt: z.number(), ...held });

/** Sessions as texts in a store. */
export interface SessionTexts {
  /** The text for the session of this key: the user, the absolute limit and what the provider said are sealed to the key. */
  encode(key: string, session: Session): string;
  /** The session of a text that was stored under this key; undefined if it is none, or is another key's. */
  decode(key: string, text: string): Session | undefined;
}

export function sessionTexts(sealer: Sealer): SessionTexts {
  function openSealed(key: string, stored: unknown): Session | undefined {
    const outer = sealedSession.safeParse(stored).data;
    const text = outer && sealer.open(outer.sealed, key);
    const inner = text === undefined ? undefined : sealedPart.safeParse(parse(text)).data;
    return outer && inner && { ...inner, idleExpiresAt: outer.idleExpiresAt };
  }

  return {
    encode(key, { idleExpiresAt, ...session }) {
      const { user, providerSession } = session;
      const sets = [USER_PREFIX + user.id];
      if (providerSession !== undefined) sets.push(PROVIDER_PREFIX + providerSession);
      const sealed = sealer.seal(JSON.stringify(session, wellFormed), key);
      return JSON.stringify({ v: 2, idleExpiresAt, sets, sealed }, wellFormed);
    },
    decode(key, text) {
      const stored = parse(text);
      const opened = openSealed(key, stored);
      if (opened) return opened;
      const { v: _, ...session } = openSession.safeParse(stored).data ?? { v: 0 };
      return 'user' in session ? session : undefined;
    },
  };
}

/** Redis cannot read JSON with half a surrogate pair in it, and would not know whose session it is. */
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
