import { errors, type JWTPayload, jwtVerify } from 'jose';
import { CLOCK_TOLERANCE_S, type ProviderMetadata } from './provider-metadata.ts';

export interface SignedTokensOptions {
  /** The relay's id at the provider: a token must be issued to it. */
  readonly clientId: string;
  /** Returns the provider's metadata. */
  readonly getMetadata: () => Promise<ProviderMetadata>;
}

/** The claims of a token that the provider has signed for this relay, at most `maxAgeS` seconds ago. */
export type VerifyToken = (token: string, maxAgeS: number) => Promise<JWTPayload>;

/** Makes the function that verifies tokens. It throws errors of `jose` and of `getMetadata`. */
export function signedTokens({ clientId, getMetadata }: SignedTokensOptions): VerifyToken {
  return async function verify(token, maxAgeS) {
    const { configuration, keys } = await getMetadata();
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

/** A token with several audiences must have been issued to this relay (OpenID Connect Core §3.1.3.7, 4 and 5). */
function checkParties(claims: JWTPayload, clientId: string): void {
  const { aud, azp } = claims;
  if (azp === undefined ? [aud].flat().length === 1 : azp === clientId) return;
  throw new errors.JWTClaimValidationFailed('unexpected "azp" claim value', claims, 'azp', 'check_failed');
}
