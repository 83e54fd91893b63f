import * as oidc from 'openid-client';
import { providerProblem } from './provider-errors.ts';

/** What the token endpoint has said to a client that asked for the tokens of a made-up code. */
export interface ClientProof {
  /** Its error or the system's, as one word; `tokens` if it has given some. */
  readonly said: string;
  /** Whether it knows the client by its id and secret, does not, or has not told. */
  readonly client: 'known' | 'refused' | 'unproven';
}

/** What says that it is the client who is not accepted (RFC 6749 §5.2), in whichever words. */
const REFUSED = /^(invalid_client|unauthorized_client|HTTP_401)$/;

/**
 * Asks the token endpoint for the tokens of a code that nobody has given, as a sign-in asks it (RFC 6749 §4.1.3): it
 * looks at the client before it looks at the code. Never rejects.
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
