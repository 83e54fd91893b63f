import { hkdfSync } from 'node:crypto';
import type { CookieOptions, Request, Response } from 'express';
import { EncryptJWT, jwtDecrypt } from 'jose';
import { randomNonce, randomPKCECodeVerifier, randomState } from 'openid-client';
import { z } from 'zod';
import type { Secret } from '../../secret.ts';
import { requestCookies } from '../sessions/session-cookie.ts';

/** How long a user may take at the identity provider, in seconds. */
const MAX_SECONDS = 600;
/** How many sign-ins one browser may have under way: the cookies of more would not fit into a request. */
const MAX_FLOWS = 5;

/** The beginning of the cookie's name, after `__Host-` where browsers see the relay over https. */
export const SIGN_IN_COOKIE = 'bot_relay_sign_in_';

const flowSchema = z.object({
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
});

/** One sign-in at the identity provider that is under way. */
export interface SignInFlow {
  /** The id of this sign-in (RFC 6749 §10.12). */
  readonly state: string;
  /** Binds the ID token to this sign-in (OpenID Connect Core §3.1.2.1). */
  readonly nonce: string;
  /** The code verifier (RFC 7636 §4.1). */
  readonly verifier: string;
  /** The local path to which the browser returns. */
  readonly returnTo: string;
}

export interface SignInFlowsOptions {
  /** The first one encrypts, all decrypt. */
  readonly secrets: readonly Secret[];
  /** A sign-in can finish only in the realm where it began, so that no other provider gets its code. */
  readonly realm: string;
  /** Whether the browser sees the relay over https. */
  readonly https: boolean;
}

export interface SignInFlows {
  /** Makes a new sign-in, which is not stored yet. */
  begin(returnTo: string): SignInFlow;
  /** Stores a sign-in in a cookie of the answer, and removes the cookies of the oldest others if there are too many. */
  keep(req: Request, res: Response, flow: SignInFlow): Promise<void>;
  /** Returns the sign-in `state` of this browser and removes its cookie; undefined if there is none. */
  take(req: Request, res: Response, state: string): Promise<SignInFlow | undefined>;
}

/**
 * The sign-ins that are under way, each in its own encrypted cookie. So tabs do not disturb each other, the relay stores
 * nothing for users who never come back, and any instance can finish a sign-in. The cookie is `Lax`, since the identity
 * provider redirects from another site.
 */
export function signInFlows({ secrets, realm, https }: SignInFlowsOptions): SignInFlows {
  const keys = secrets.map((secret) => keyOf(secret, realm)) as [Uint8Array, ...Uint8Array[]];
  const prefix = (https ? '__Host-' : '') + SIGN_IN_COOKIE;
  const flags: CookieOptions = { httpOnly: true, sameSite: 'lax', path: '/', secure: https };
  const underWay = (req: Request) =>
    requestCookies(req.headers.cookie)
      .filter(({ name, value }) => name.startsWith(prefix) && /^[\w.-]+$/.test(value))
      .map(({ name, value }) => ({ state: name.slice(prefix.length), text: value }))
      .filter(({ state }) => /^[\w-]{43}$/.test(state));

  return {
    begin: (returnTo) => ({
      state: randomState(),
      nonce: randomNonce(),
      verifier: randomPKCECodeVerifier(),
      returnTo,
    }),
    async keep(req, res, flow) {
      // Browsers send the oldest cookie first (RFC 6265 §5.4). At most `MAX_FLOWS` are removed at once, since some
      // proxies refuse an answer with very many headers.
      const tooMany = underWay(req).slice(0, -(MAX_FLOWS - 1));
      for (const { state } of tooMany.slice(0, MAX_FLOWS)) res.clearCookie(prefix + state, flags);
      res.cookie(prefix + flow.state, await encrypt(flow, keys[0]), { ...flags, maxAge: MAX_SECONDS * 1000 });
    },
    async take(req, res, state) {
      const text = underWay(req).find((one) => one.state === state)?.text;
      if (text === undefined) return undefined;
      res.clearCookie(prefix + state, flags);
      const flow = await decrypt(text, keys);
      return flow?.state === state ? flow : undefined;
    },
  };
}

function keyOf(secret: Secret, realm: string): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', secret.open(), '', `bot-relay sign-in ${realm}`, 32));
}

function encrypt(flow: SignInFlow, key: Uint8Array): Promise<string> {
  return new EncryptJWT({ ...flow })
    .setProtectedHeader({ alg: 'dir', enc: 'A256GCM' })
    .setExpirationTime(Math.floor(Date.now() / 1000) + MAX_SECONDS)
    .encrypt(key);
}

async function decrypt(text: string, keys: readonly Uint8Array[]): Promise<SignInFlow | undefined> {
  for (const key of keys) {
    try {
      const { payload } = await jwtDecrypt(text, key, {
        keyManagementAlgorithms: ['dir'],
        contentEncryptionAlgorithms: ['A256GCM'],
      });
      return flowSchema.safeParse(payload).data;
    } catch {
      // It belongs to another key, was changed, or has expired.
    }
  }
  return undefined;
}
