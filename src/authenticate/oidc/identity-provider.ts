import type { JWTPayload } from 'jose';
import * as oidc from 'openid-client';
import type { Config } from '../../config/config.ts';
import { Problem } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { ProviderSession, User } from '../sessions/session.ts';
import { type Claims, type RequiredClaim, refusalOf, userOf } from './claims.ts';
import { providerProblem } from './provider-errors.ts';
import {
  type ProviderMetadata,
  type ProviderMetadataOptions,
  providerMetadata,
} from './provider-metadata.ts';
import type { SignInFlow } from './sign-in-flows.ts';
import { signedTokens, type VerifyToken } from './signed-tokens.ts';

/** How old an ID token may be, in seconds. Its end usually comes first; some providers date it a few minutes back. */
const ID_TOKEN_MAX_AGE_S = 3600;

export interface IdentityProviderOptions extends ProviderMetadataOptions {
  readonly scopes: string;
  readonly requiredClaim: RequiredClaim | undefined;
  readonly keepIdToken: boolean;
  /** Where the provider sends the browser after a sign-in and after a sign-out. */
  readonly callbackUrl: string;
  readonly signedOutUrl: string;
}

/** The identity provider that `config` names, which sends browsers back to `PUBLIC_URL`. */
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

/** Where the provider sends browsers back to after a sign-in. */
export function callbackUrlOf({ publicUrl, basePath }: Pick<Config, 'publicUrl' | 'basePath'>): string {
  return `${publicUrl.origin}${basePath}/auth/callback`;
}

/** Who has signed in, and in which session of the provider. */
export interface Arrival {
  readonly user: User;
  readonly provider: ProviderSession;
}

/** The identity provider as the relay uses it. Where nothing else is said, methods throw Problem `identity_provider_unavailable`. */
export interface IdentityProvider {
  /** Asks the provider what it says of itself, if that is not known yet. Never rejects: the log tells what comes of it. */
  discover(): Promise<void>;
  /** Where the browser goes to sign in. `again` asks for the password even of those who are signed in there. */
  signInUrl(flow: SignInFlow, again: boolean): Promise<string>;
  /**
   * Ends a sign-in: redeems the code in the query of the callback.
   * @throws Problem `sign_in_failed`, `not_allowed`
   */
  arrive(query: string, flow: SignInFlow): Promise<Arrival>;
  /** Where the browser goes to sign out there too; undefined if that cannot be done. */
  signOutUrl(session: ProviderSession): Promise<string | undefined>;
  /**
   * The claims of a token that the provider has signed for this relay, at most `maxAgeS` seconds ago.
   * @throws an error of `jose` if it has not
   */
  verify(token: string, maxAgeS: number): Promise<JWTPayload>;
}

/** The OpenID Connect provider at `issuer` (OpenID Connect Core 1.0). */
export function identityProvider(options: IdentityProviderOptions): IdentityProvider {
  const discovered = providerMetadata(options);
  const verify = signedTokens({ clientId: options.clientId, discovered });
  const provider: Provider = { options, discovered, verify };
  return {
    discover: () => discovered().then(noop, noop),
    verify,
    signInUrl: (flow, again) => orProblem(() => signInUrl(provider, flow, again)),
    arrive: (query, flow) => orProblem(() => arrive(provider, query, flow)),
    // A user for whom this fails is signed out here all the same.
    signOutUrl: (session) => signOutUrl(provider, session).catch(noop),
  };
}

/** What the calls to one provider share. */
interface Provider {
  readonly options: IdentityProviderOptions;
  readonly discovered: () => Promise<ProviderMetadata>;
  readonly verify: VerifyToken;
}

async function signInUrl(
  { options, discovered }: Provider,
  flow: SignInFlow,
  again: boolean,
): Promise<string> {
  const { configuration } = await discovered();
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

async function arrive(provider: Provider, query: string, flow: SignInFlow): Promise<Arrival> {
  const { callbackUrl, requiredClaim, keepIdToken } = provider.options;
  const { configuration } = await provider.discovered();
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

/** The ID token's claims, and the user's from where the provider keeps them if it keeps them there (Core §5.3). */
async function claimsOf(
  { options: { requiredClaim }, verify }: Provider,
  tokens: oidc.TokenEndpointResponse,
  configuration: oidc.Configuration,
): Promise<Claims> {
  const claims = (await verify(tokens.id_token as string, ID_TOKEN_MAX_AGE_S)) as Claims;
  const wanted = ['name', ...(requiredClaim ? [requiredClaim.name] : [])];
  if (wanted.every((name) => claims[name] !== undefined)) return claims;
  if (configuration.serverMetadata().userinfo_endpoint === undefined) return claims;
  return { ...(await oidc.fetchUserInfo(configuration, tokens.access_token, claims.sub)), ...claims };
}

async function signOutUrl(
  { options, discovered }: Provider,
  { idToken }: ProviderSession,
): Promise<string | undefined> {
  const { configuration } = await discovered();
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
