import * as oidc from 'openid-client';
import { providerProblem } from './provider-errors.ts';

/** The answer of the token endpoint to a request with a made-up code. */
export interface ClientProof {
  /** The error of the provider or of the system, as one word; `tokens` if it gave tokens. */
  readonly said: string;
  /** Whether the provider accepts the client's id and secret, refuses them, or has not said it. */
  readonly client: 'known' | 'refused' | 'unproven';
}

/** Errors that say that the client is not accepted (RFC 6749 §5.2). */
const REFUSED = /^(invalid_client|unauthorized_client|HTTP_401)$/;

/**
 * Asks the token endpoint for the tokens of a made-up code, as a sign-in does (RFC 6749 §4.1.3). The provider checks the
 * client before the code. Never rejects.
 */
export async function proveClient(
  configuration: oidc.Configuration,
  callbackUrl: string,
): Promise<ClientProof> {
  try {
    await oidc.genericGrantRequest(configuration, 'authorization_code', {
      code: oidc.randomState(),
      code_verifier: oidc.randomPKCECodeVerifier(),
      redirect_uri: callbackUrl,
    });
    return { said: 'tokens', client: 'unproven' };
  } catch (error) {
    const said = String(providerProblem(error).cause);
    if (said === 'invalid_grant') return { said, client: 'known' };
    const isRefused = REFUSED.test(said) || (error as { status?: unknown }).status === 401;
    return { said, client: isRefused ? 'refused' : 'unproven' };
  }
}
