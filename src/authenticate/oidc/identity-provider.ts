import { errors, type JWTPayload, jwtVerify } from 'jose';
import * as oidc from 'openid-client';
import type { Config } from '../../config/config.ts';
import { Problem } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { ProviderSession, User } from '../sessions/session.ts';
import { type Claims, type RequiredClaim, refusalOf, userOf } from './claims.ts';
import { providerProblem } from './provider-errors.ts';
import {
  CLOCK_TOLERANCE_S,
  type ProviderMetadata,
  type ProviderMetadataOptions,
  providerMetadata,
} from './provider-metadata.ts';
import type { SignInFlow } from './sign-in-flows.ts';

/** How old an ID token may be, in seconds. Usually it expires before; some providers date it a few minutes back. */
const ID_TOKEN_MAX_AGE_S = 3600;

interface IdentityProviderOptions extends ProviderMetadataOptions {
  readonly scopes: string;
  readonly requiredClaim: RequiredClaim | undefined;
  readonly keepIdToken: boolean;
  /** Where the provider sends the browser after a sign-in and after a sign-out. */
  readonly callbackUrl: string;
  readonly signedOutUrl: string;
}

/** The identity provider of the configuration. It sends browsers back to `PUBLIC_URL`. */
export function providerOf(
  config: Pick<Config, 'oidc' | 'publicUrl' | 'basePath'>,
  logger: Logger,
): IdentityProvider {
  const callbackUrl = callbackUrlOf(config);
  return identityProvider({
    ...config.oidc,
    callbackUrl,
    signedOutUrl: `${config.publicUrl.origin}/`,
    logger,
  });
}

/** The address to which the provider sends browsers back after a sign-in. */
export function callbackUrlOf({ publicUrl, basePath }: Pick<Config, 'publicUrl' | 'basePath'>): string {
  return `${publicUrl.origin}${basePath}/auth/callback`;
}

/** The user who has signed in, and the provider's session. */
interface SignInResult {
  readonly user: User;
  readonly provider: ProviderSession;
}

/**
 * The identity provider as the relay uses it. Methods throw Problem `identity_provider_unavailable` unless they say
 * otherwise.
 */
export interface IdentityProvider {
  /** Fetches the provider's metadata if it is not known yet. Never rejects; the result is logged. */
  discover(): Promise<void>;
  /**
   * The address where users sign in. With `again` the provider asks for the password even if they are signed in there.
   */
  signInUrl(flow: SignInFlow, again: boolean): Promise<string>;
  /**
   * Finishes a sign-in: redeems the code in the query of the callback.
   * @throws Problem `sign_in_failed`, `not_allowed`
   */
  finishSignIn(query: string, flow: SignInFlow): Promise<SignInResult>;
  /** The address where users sign out at the provider, too; undefined if there is none. Never rejects. */
  signOutUrl(session: ProviderSession): Promise<string | undefined>;
  /**
   * The claims of a token that the provider has signed for this relay, at most `maxAgeS` seconds ago.
   * @throws an error of `jose` if it has not
   */
  verify(token: string, maxAgeS: number): Promise<JWTPayload>;
}

/** The OpenID Connect provider at `issuer` (OpenID Connect Core 1.0). */
export function identityProvider(options: IdentityProviderOptions): IdentityProvider {
  const getMetadata = providerMetadata(options);
  const provider: Provider = { options, getMetadata };
  return {
    discover: () => getMetadata().then(noop, noop),
    verify: (token, maxAgeS) => verify(provider, token, maxAgeS),
    signInUrl: (flow, again) => orProblem(() => signInUrl(provider, flow, again)),
    finishSignIn: (query, flow) => orProblem(() => finishSignIn(provider, query, flow)),
    // If this fails, the user is signed out of the relay only.
    signOutUrl: (session) => signOutUrl(provider, session).catch(noop),
  };
}

/** What the calls to one provider share. */
interface Provider {
  readonly options: IdentityProviderOptions;
  readonly getMetadata: () => Promise<ProviderMetadata>;
}

async function signInUrl(
  { options, getMetadata }: Provider,
  flow: SignInFlow,
  again: boolean,
): Promise<string> {
  const { configuration } = await getMetadata();
  const url = oidc.buildAuthorizationUrl(configuration, {
    redirect_uri: options.callbackUrl,
    scope: options.scopes,
    state: flow.state,
    nonce: flow.nonce,
    code_challenge: await oidc.calculatePKCECodeChallenge(flow.verifier),
    code_challenge_method: 'S256',
    ...(again && { prompt: 'login' }),
  });
  return url.href;
}

async function finishSignIn(provider: Provider, query: string, flow: SignInFlow): Promise<SignInResult> {
  const { callbackUrl, requiredClaim, keepIdToken } = provider.options;
  const { configuration } = await provider.getMetadata();
  const tokens = await oidc.authorizationCodeGrant(configuration, new URL(callbackUrl + query), {
    expectedState: flow.state,
    expectedNonce: flow.nonce,
    pkceCodeVerifier: flow.verifier,
  });
  const claims = await claimsOf(provider, tokens, configuration);
  const user = userOf(claims);
  const cause = refusalOf(claims, requiredClaim);
  if (cause !== undefined) {
    const detail = 'The identity provider knows you, but your account may not use this.';
    throw new Problem('not_allowed', detail, { cause, userId: user.id });
  }
  const { sid } = claims;
  return {
    user,
    provider: {
      ...(typeof sid === 'string' && { providerSession: sid }),
      ...(keepIdToken && { idToken: tokens.id_token as string }),
    },
  };
}

/** The claims of the ID token, and those of the provider's UserInfo endpoint if the token lacks one (Core §5.3). */
async function claimsOf(
  provider: Provider,
  tokens: oidc.TokenEndpointResponse,
  configuration: oidc.Configuration,
): Promise<Claims> {
  const { requiredClaim } = provider.options;
  const claims = (await verify(provider, tokens.id_token as string, ID_TOKEN_MAX_AGE_S)) as Claims;
  const wanted = ['name', ...(requiredClaim ? [requiredClaim.name] : [])];
  if (wanted.every((name) => claims[name] !== undefined)) return claims;
  if (configuration.serverMetadata().userinfo_endpoint === undefined) return claims;
  return { ...(await oidc.fetchUserInfo(configuration, tokens.access_token, claims.sub)), ...claims };
}

async function signOutUrl(
  { options, getMetadata }: Provider,
  { idToken }: ProviderSession,
): Promise<string | undefined> {
  const { configuration } = await getMetadata();
  if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
  return oidc.buildEndSessionUrl(configuration, {
    post_logout_redirect_uri: options.signedOutUrl,
    ...(idToken !== undefined && { id_token_hint: idToken }),
  }).href;
}

const noop = () => undefined;

async function orProblem<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw providerProblem(error);
  }
}

/** The claims of a token: `verify` of `IdentityProvider`. */
async function verify(
  { options, getMetadata }: Provider,
  token: string,
  maxAgeS: number,
): Promise<JWTPayload> {
  const { clientId } = options;
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
}

/** A token with several audiences must have been issued to this relay (OpenID Connect Core §3.1.3.7, 4 and 5). */
function checkParties(claims: JWTPayload, clientId: string): void {
  const { aud, azp } = claims;
  if (azp === undefined ? [aud].flat().length === 1 : azp === clientId) return;
  throw new errors.JWTClaimValidationFailed('unexpected "azp" claim value', claims, 'azp', 'check_failed');
}
