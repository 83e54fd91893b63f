import { hkdfSync, randomUUID } from 'node:crypto';
import { SignJWT } from 'jose/jwt/sign';
import { jwtVerify } from 'jose/jwt/verify';
import { z } from 'zod';
import type { Secret } from '../secret.ts';

/** How long a token is valid, and how far ahead the signer's clock may be, both in seconds. */
const LIFE_SECONDS = 60;
const MAX_AHEAD_SECONDS = 30;
/** After this time from its first arrival, a token is expired at all instances, even if their clocks differ; in ms. */
export const PROBE_WINDOW_MS = 2 * (LIFE_SECONDS + MAX_AHEAD_SECONDS) * 1000;

/**
 * How a probe can ask to fail: with a status, or with a connection that is cut before any answer. `cut` comes last, since
 * nginx then sends nothing to the instance for 10 s, and a probe could not be seen to be sent again.
 */
export const FAILURES = ['500', '502', '504', 'cut'] as const;

const probeSchema = z.object({
  /** The id of the token, which is valid once (RFC 7519 §4.1.7). */
  jti: z.string().min(1),
  exp: z.number(),
  /** What the relay should answer, or how it should fail. */
  ask: z.enum(['client', 'arrivals', ...FAILURES]),
  /** For `arrivals`: the `jti` of the probe whose arrivals are counted. */
  of: z.string().optional(),
});

export type Probe = z.infer<typeof probeSchema>;
export type ProbeAsk = Pick<Probe, 'ask' | 'of'>;

export interface ProbeTokens {
  /** A new token, and the `jti` by which its arrivals are counted. */
  sign(ask: ProbeAsk): Promise<{ readonly token: string; readonly jti: string }>;
  /** Reads what a token asks for; undefined if it is invalid or expired. Does not check whether it was used before. */
  read(token: string): Promise<Probe | undefined>;
}

/**
 * Tokens by which the relay recognizes a probe of `check`: signed (RFC 7515, HS256) with a key that is derived from
 * SESSION_SECRETS only for this (RFC 5869), so that no token can open a session. The first secret signs, all verify.
 */
export function probeTokens(secrets: readonly Secret[]): ProbeTokens {
  const keys = secrets.map(keyOf) as [Uint8Array, ...Uint8Array[]];
  return {
    async sign(ask) {
      const jti = randomUUID();
      const jwt = new SignJWT({ ...ask, jti }).setProtectedHeader({ alg: 'HS256' });
      return { jti, token: await jwt.setExpirationTime(nowInSeconds() + LIFE_SECONDS).sign(keys[0]) };
    },
    async read(token) {
      for (const key of keys) {
        try {
          const { payload } = await jwtVerify(token, key, { algorithms: ['HS256'] });
          const probe = probeSchema.safeParse(payload).data;
          return probe && probe.exp <= nowInSeconds() + LIFE_SECONDS + MAX_AHEAD_SECONDS ? probe : undefined;
        } catch {
          // Signed with another key, changed, or expired.
        }
      }
      return undefined;
    },
  };
}

function keyOf(secret: Secret): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', secret.open(), '', 'bot-relay check probe', 32));
}

function nowInSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
