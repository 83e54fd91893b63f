import type { SessionData } from 'express-session';
import { z } from 'zod';

const VERSION = 1;

/** What a stored text begins with, up to the idle limit's digits: scripts in Redis change them in place. */
export const TEXT_START = `{"v":${VERSION},"idleExpiresAt":`;

const storedSession = z.looseObject({
  v: z.literal(VERSION),
  idleExpiresAt: z.number(),
  absoluteExpiresAt: z.number().optional(),
  user: z.object({ id: z.string(), name: z.string() }).optional(),
  providerSession: z.string().optional(),
  idToken: z.string().optional(),
});

/** A session as stores keep it: with a version, and without the cookie's settings, which are those of the relay. */
export function encodeSession(data: SessionData): string {
  const { cookie: _, idleExpiresAt = 0, ...rest } = data;
  return JSON.stringify({ v: VERSION, idleExpiresAt, ...rest }, wellFormed);
}

/** Redis cannot read JSON with half a surrogate pair in it, and would not know whose session it is. */
function wellFormed(_key: string, value: unknown): unknown {
  return typeof value === 'string' ? value.toWellFormed() : value;
}

/** The session of a stored text; null if it is none of this version. */
export function decodeSession(text: string): SessionData | null {
  const { data } = storedSession.safeParse(parse(text));
  if (!data) return null;
  const { v: _, ...rest } = data;
  return { cookie: { originalMaxAge: null }, ...rest } as SessionData;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
