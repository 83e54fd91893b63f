import { hkdfSync, randomUUID } from 'node:crypto';
import { jwtVerify, SignJWT } from 'jose';
import { z } from 'zod';
import type { Secret } from '../secret.ts';

/** How long a token is good for, and how far ahead the clock of who signs may be, both in seconds. */
const LIFE_SECONDS = 60;
const MAX_AHEAD_SECONDS = 30;
/** A token is over for good this long after it first came, also where the clocks of two instances differ; in ms. */
export const PROBE_WINDOW_MS = 2 * (LIFE_SECONDS + MAX_AHEAD_SECONDS) * 1000;

/**
 * How a probe can have itself failed: by a status, or by a connection that is cut before any answer. That comes last:
 * nginx sends nothing for 10 s to an instance that has cut one, so that it could send nothing again either.
 */
export const FAILURES = ['500', '502', '504', 'cut'] as const;

const probeSchema = z.object({
  /** One use (RFC 7519 §4.1.7). */
  jti: z.string().min(1),
  exp: z.number(),
  /** What the relay is to tell, or how it is to fail. */
  ask: z.enum(['client', 'arrivals', ...FAILURES]),
  /** The `jti` of the probe whose arrivals are asked for. */
  of: z.string().optional(),
});

export type Probe = z.infer<typeof probeSchema>;
export type ProbeAsk = Pick<Probe, 'ask' | 'of'>;

export interface ProbeTokens {
  /** A new token, and the `jti` by which its arrivals are counted. */
  sign(ask: ProbeAsk): Promise<{ readonly token: string; readonly jti: string }>;
  /** What a token asks for; undefined if it is none of ours, or over. Whether it came before, it does not know. */
  read(token: string): Promise<Probe | undefined>;
}

/**
 * Tokens by which the relay knows a probe of `check`: signed (RFC 7515, HS256) with a key that is derived from
 * SESSION_SECRETS for this alone (RFC 5869), so that a token opens no session. The first secret signs, all verify.
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
          // Of another key, changed, or over.
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
