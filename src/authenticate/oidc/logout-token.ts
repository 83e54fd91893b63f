import { z } from 'zod';
import { Problem } from '../../errors.ts';
import type { IdentityProvider } from './identity-provider.ts';
import { providerProblem } from './provider-errors.ts';

/** How old a token may be, in seconds. */
const MAX_AGE_S = 120;
/** How long a token could be replayed and still be valid, in ms, even if clocks differ. */
export const LOGOUT_TOKEN_LIFE_MS = 2 * MAX_AGE_S * 1000;

const logoutClaims = z
  .object({
    jti: z.string().min(1).max(512),
    sub: z.string().min(1).optional(),
    sid: z.string().min(1).optional(),
    events: z.object({ 'http://schemas.openid.net/event/backchannel-logout': z.object({}) }),
    nonce: z.undefined().optional(),
  })
  .refine(({ sub, sid }) => sub !== undefined || sid !== undefined);

/** The claims of a logout token: its id, and a session of the provider, or a user, or both. */
export type LogoutToken = z.infer<typeof logoutClaims>;

/**
 * Checks a logout token (OpenID Connect Back-Channel Logout 1.0 §2.6), except whether it is a replay.
 * @throws Problem `invalid_logout_token`, or `identity_provider_unavailable` if the provider's keys are not available
 */
export async function readLogoutToken(token: string, provider: IdentityProvider): Promise<LogoutToken> {
  let claims: unknown;
  try {
    claims = await provider.verify(token, MAX_AGE_S);
  } catch (error) {
    const problem = providerProblem(error);
    if (problem.code === 'identity_provider_unavailable') throw problem;
    throw invalidLogoutToken(problem.cause);
  }
  const { data } = logoutClaims.safeParse(claims);
  if (!data) throw invalidLogoutToken('bad_claims');
  return data;
}

/** `cause` is one word for the log. */
export function invalidLogoutToken(cause: unknown): Problem {
  return new Problem('invalid_logout_token', 'The logout token is not valid.', { cause });
}
