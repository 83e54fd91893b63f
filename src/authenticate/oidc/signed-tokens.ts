import { errors, type JWTPayload, jwtVerify } from 'jose';
import { CLOCK_TOLERANCE_S, type ProviderMetadata } from './provider-metadata.ts';

export interface SignedTokensOptions {
  /** The name of the relay at the provider: a token has to be issued to it. */
  readonly clientId: string;
  /** What the provider says of itself. */
  readonly discovered: () => Promise<ProviderMetadata>;
}

/** The claims of a token that the provider has signed for this relay, at most `maxAgeS` seconds ago. */
export type VerifyToken = (token: string, maxAgeS: number) => Promise<JWTPayload>;

/** Makes the function that verifies tokens; it throws an error of `jose`, and what `discovered` throws. */
export function signedTokens({ clientId, discovered }: SignedTokensOptions): VerifyToken {
  return async function verify(token, maxAgeS) {
    const { configuration, keys } = await discovered();
    const { issuer, id_token_signing_alg_values_supported } = configuration.serverMetadata();
    const { payload } = await jwtVerify(token, keys, {
      issuer,
      audience: clientId,
      algorithms: id_token_signing_alg_values_supported ?? ['RS256'],
      clockTolerance: CLOCK_TOLERANCE_S,
      maxTokenAge: maxAgeS,
    });
    checkParties(payload, clientId);
    return payload;
  };
}

/** A token for several is one for this relay only if it was issued to it (OpenID Connect Core §3.1.3.7, 4 and 5). */
function checkParties(claims: JWTPayload, clientId: string): void {
  const { aud, azp } = claims;
  if (azp === undefined ? [aud].flat().length === 1 : azp === clientId) return;
  throw new errors.JWTClaimValidationFailed('unexpected "azp" claim value', claims, 'azp', 'check_failed');
}
