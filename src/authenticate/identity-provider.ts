import {
  createRemoteJWKSet,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from 'jose';
import * as oidc from 'openid-client';
import type { Config } from '../config.ts';
import { Problem } from '../errors.ts';
import type { User } from '../locals.ts';
import type { Logger } from '../logger.ts';
import type { Secret } from '../secret.ts';
import { type Claims, isAllowed, type RequiredClaim, userOf } from './claims.ts';
import { providerProblem } from './provider-errors.ts';
import type { ProviderSession } from './session-data.ts';
import type { SignInFlow } from './sign-in-flows.ts';

/** How long one request to the provider may take, in seconds. */
const TIMEOUT_S = 5;
/** How far the provider's clock may be off, in seconds. */
const CLOCK_TOLERANCE_S = 30;
/** How long what the provider says of itself is believed, in ms. */
const METADATA_MAX_AGE_MS = 3_600_000;
/** How long its keys are, in ms; and how soon they may be asked for again when a token is signed by another one. */
const KEYS = { cacheMaxAge: 600_000, cooldownDuration: 5_000, timeoutDuration: TIMEOUT_S * 1000 };

export interface IdentityProviderOptions {
  readonly issuer: Readonly<URL>;
  readonly clientId: string;
  readonly clientSecret: Secret;
  readonly scopes: string;
  readonly requiredClaim: RequiredClaim | undefined;
  readonly keepIdToken: boolean;
  /** Where the provider sends the browser after a sign-in and after a sign-out. */
  readonly callbackUrl: string;
  readonly signedOutUrl: string;
  readonly logger: Logger;
}

/** The identity provider that `config` names, which sends browsers back to `PUBLIC_URL`. */
export function providerOf(
  config: Pick<Config, 'oidc' | 'publicUrl' | 'basePath'>,
  logger: Logger,
): IdentityProvider {
  const { oidc, publicUrl, basePath } = config;
  const callbackUrl = `${publicUrl.origin}${basePath}/auth/callback`;
  return identityProvider({ ...oidc, callbackUrl, signedOutUrl: `${publicUrl.origin}/`, logger });
}

/** Who has signed in, and in which session of the provider. */
export interface Arrival {
  readonly user: User;
  readonly provider: ProviderSession;
}

/** The identity provider as the relay uses it. Every method throws Problem `identity_provider_unavailable`. */
export interface IdentityProvider {
  /** Where the browser goes to sign in. `again` asks for the password even of those who are signed in there. */
  signInUrl(flow: SignInFlow, again: boolean): Promise<string>;
  /**
   * Ends a sign-in: redeems the code in the query of the callback.
   * @throws Problem `sign_in_failed`, `not_allowed`
   */
  arrive(query: string, flow: SignInFlow): Promise<Arrival>;
  /** Where the browser goes to sign out there too; undefined if that cannot be done. */
  signOutUrl(session: ProviderSession): Promise<string | undefined>;
  /** The claims of a token that the provider has signed for this relay. @throws an error of `jose` if it has not */
  verify(token: string, options?: JWTVerifyOptions): Promise<JWTPayload>;
}

/** What the provider says of itself. */
export interface Discovered {
  readonly configuration: oidc.Configuration;
  readonly keys: JWTVerifyGetKey;
  readonly at: number;
}

/**
 * The OpenID Connect provider at `issuer` (OpenID Connect Core 1.0, Discovery 1.0). What it says of itself is asked for
 * when first needed, and again when it is old; while it cannot be had, what was said last goes on.
 */
export function identityProvider(options: IdentityProviderOptions): IdentityProvider {
  const { clientId, scopes, callbackUrl, signedOutUrl, requiredClaim, keepIdToken } = options;
  const discovered = discovery(options);

  async function verify(token: string, verifyOptions: JWTVerifyOptions = {}): Promise<JWTPayload> {
    const { configuration, keys } = await discovered();
    const { payload } = await jwtVerify(token, keys, {
      issuer: configuration.serverMetadata().issuer,
      audience: clientId,
      clockTolerance: CLOCK_TOLERANCE_S,
      ...verifyOptions,
    });
    return payload;
  }

  /** The ID token's claims, and the user's from where the provider keeps them if it keeps them there (Core §5.3). */
  async function claimsOf(tokens: oidc.TokenEndpointResponse): Promise<Claims> {
    const { configuration } = await discovered();
    const claims = (await verify(tokens.id_token as string)) as Claims;
    const wanted = ['name', ...(requiredClaim ? [requiredClaim.name] : [])];
    if (wanted.every((name) => claims[name] !== undefined)) return claims;
    if (configuration.serverMetadata().userinfo_endpoint === undefined) return claims;
    return { ...(await oidc.fetchUserInfo(configuration, tokens.access_token, claims.sub)), ...claims };
  }

  return {
    verify,
    signInUrl: (flow, again) =>
      orProblem(async () => {
        const { configuration } = await discovered();
        const url = oidc.buildAuthorizationUrl(configuration, {
          redirect_uri: callbackUrl,
          scope: scopes,
          state: flow.state,
          nonce: flow.nonce,
          code_challenge: await oidc.calculatePKCECodeChallenge(flow.verifier),
          code_challenge_method: 'S256',
          ...(again && { prompt: 'login' }),
        });
        return url.href;
      }),
    arrive: (query, flow) =>
      orProblem(async () => {
        const { configuration } = await discovered();
        const tokens = await oidc.authorizationCodeGrant(configuration, new URL(callbackUrl + query), {
          expectedState: flow.state,
          expectedNonce: flow.nonce,
          pkceCodeVerifier: flow.verifier,
        });
        const claims = await claimsOf(tokens);
        if (!isAllowed(claims, requiredClaim)) {
          throw new Problem('not_allowed', 'You are signed in, but your account may not use this.');
        }
        const { sid } = claims;
        const provider = {
          ...(typeof sid === 'string' && { providerSession: sid }),
          ...(keepIdToken && { idToken: tokens.id_token as string }),
        };
        return { user: userOf(claims), provider };
      }),
    async signOutUrl({ idToken }) {
      try {
        const { configuration } = await discovered();
        if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
        return oidc.buildEndSessionUrl(configuration, {
          post_logout_redirect_uri: signedOutUrl,
          ...(idToken !== undefined && { id_token_hint: idToken }),
        }).href;
      } catch {
        // Signed out here they are all the same.
        return undefined;
      }
    },
  };
}

async function orProblem<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw providerProblem(error);
  }
}

/** What the provider says of itself; asked for once by all who want to know at once. */
function discovery(options: IdentityProviderOptions): () => Promise<Discovered> {
  const { logger } = options;
  let last: Discovered | undefined;
  let asking: Promise<Discovered> | undefined;

  async function ask(): Promise<Discovered> {
    try {
      last = await discover(options);
      return last;
    } catch (error) {
      const { cause } = providerProblem(error);
      logger.error({ cause }, 'identity provider not discovered');
      if (last) return last;
      throw error;
    } finally {
      asking = undefined;
    }
  }

  return async () => {
    if (last && performance.now() - last.at < METADATA_MAX_AGE_MS) return last;
    asking ??= ask();
    return asking;
  };
}

/** Asks the provider once what it says of itself. @throws an error of the library or of the network */
export async function discover({
  issuer,
  clientId,
  clientSecret,
}: Pick<IdentityProviderOptions, 'issuer' | 'clientId' | 'clientSecret'>): Promise<Discovered> {
  const configuration = await oidc.discovery(
    new URL(issuer),
    clientId,
    { [oidc.clockTolerance]: CLOCK_TOLERANCE_S },
    clientAuthentication(clientSecret),
    { timeout: TIMEOUT_S, ...(issuer.protocol === 'http:' && { execute: [oidc.allowInsecureRequests] }) },
  );
  const { jwks_uri: keys } = configuration.serverMetadata();
  if (keys === undefined) throw Object.assign(new Error('no keys'), { code: 'NO_JWKS_URI' });
  return { configuration, keys: createRemoteJWKSet(new URL(keys), KEYS), at: performance.now() };
}

/** By whichever of the two common ways the provider takes; Basic where it says nothing (Discovery §3). */
function clientAuthentication(clientSecret: Secret): oidc.ClientAuth {
  const basic = oidc.ClientSecretBasic(clientSecret.open());
  const post = oidc.ClientSecretPost(clientSecret.open());
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const authenticate = methods.includes('client_secret_basic') ? basic : post;
    authenticate(server, ...rest);
  };
}
