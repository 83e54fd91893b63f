import { setTimeout as sleep } from 'node:timers/promises';
import * as oidc from 'openid-client';
import { isLoopback } from '../../http/loopback.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import { boundedFetch, type Fetch } from './bounded-fetch.ts';
import { paced } from './paced.ts';
import { providerProblem, providerUnavailable } from './provider-errors.ts';
import { providerKeys } from './provider-keys.ts';

/** How long one request to the provider may take, in seconds. */
const TIMEOUT_S = 5;
/** How far the provider's clock may be off, in seconds. */
export const CLOCK_TOLERANCE_S = 30;
/** How long what the provider says of itself is believed, in ms. */
const MAX_AGE_MS = 3_600_000;
/** When it is asked again after it did not answer, in ms: what it said before serves until then. */
const RETRY_MS = 60_000;
/** How long a sign-in or sign-out waits for something newer than what it said before, in ms. */
const PATIENCE_MS = 500;
/** How often it is asked at most, in ms. */
const PACE_MS = 250;

/** Without these nobody can sign in (OpenID Connect Discovery 1.0 §3). */
const REQUIRED_ENDPOINTS = ['jwks_uri', 'authorization_endpoint', 'token_endpoint'] as const;
const OTHER_ENDPOINTS = ['userinfo_endpoint', 'end_session_endpoint'] as const;

export interface ProviderMetadataOptions {
  readonly issuer: Readonly<URL>;
  readonly clientId: string;
  readonly clientSecret: Secret;
  readonly logger: Logger;
  /** How the provider is asked; the one of the platform if it is not given. */
  readonly fetch?: Fetch;
}

/** What is known of the provider. */
export interface ProviderMetadata {
  readonly configuration: oidc.Configuration;
  readonly keys: ReturnType<typeof providerKeys>;
}

/**
 * What the provider says of itself (OpenID Connect Discovery 1.0): asked for when first needed, once for all who want to
 * know at once, and again when it is old; while that fails, or takes long, what it said last goes on.
 * @throws Problem `identity_provider_unavailable` if nothing is known
 */
export function providerMetadata(options: ProviderMetadataOptions): () => Promise<ProviderMetadata> {
  let last: ProviderMetadata | undefined;
  let askAt = Number.NEGATIVE_INFINITY;
  let hasFailed = false;
  const { logger } = options;
  const issuer = options.issuer.origin;

  const ask = paced(async () => {
    try {
      const isNews = last === undefined || hasFailed;
      last = await discover(options);
      hasFailed = false;
      askAt = performance.now() + MAX_AGE_MS;
      if (isNews) logger.info({ issuer }, 'identity provider discovered');
      return last;
    } catch (error) {
      const { cause } = providerProblem(error);
      hasFailed = true;
      logger.error({ issuer, cause }, 'identity provider not discovered');
      if (last === undefined) throw providerUnavailable(cause);
      askAt = performance.now() + RETRY_MS;
      return last;
    }
  }, PACE_MS);

  return async () => {
    if (last === undefined) return ask();
    if (performance.now() < askAt) return last;
    return Promise.race([ask(), sleep(PATIENCE_MS, last, { ref: false })]);
  };
}

/** Asks the provider once. @throws what the library throws, or an error whose code says what is wrong with the answer */
export async function discover(options: Omit<ProviderMetadataOptions, 'logger'>): Promise<ProviderMetadata> {
  const { issuer, clientId, clientSecret } = options;
  const ask = boundedFetch(options.fetch ?? fetch);
  const configuration = await oidc.discovery(
    new URL(issuer),
    clientId,
    { [oidc.clockTolerance]: CLOCK_TOLERANCE_S },
    clientAuthentication(clientSecret),
    {
      timeout: TIMEOUT_S,
      [oidc.customFetch]: ask as oidc.CustomFetch,
      ...(issuer.protocol === 'http:' && { execute: [oidc.allowInsecureRequests] }),
    },
  );
  const metadata = configuration.serverMetadata();
  checkEndpoints(metadata, issuer);
  const keys = providerKeys(new URL(metadata.jwks_uri as string), {
    fetch: ask,
    timeoutMs: TIMEOUT_S * 1000,
  });
  return { configuration, keys };
}

/**
 * Nothing is asked, no secret is sent and no browser is led anywhere in clear text but on this machine; an issuer of
 * which an endpoint would be that way is not believed at all.
 */
function checkEndpoints(metadata: oidc.ServerMetadata, issuer: Readonly<URL>): void {
  const issuerIsSecure = issuer.protocol === 'https:';
  const isSafe = ({ protocol, hostname }: URL) =>
    protocol === 'https:' || (protocol === 'http:' && !issuerIsSecure && isLoopback(hostname));
  for (const name of REQUIRED_ENDPOINTS)
    if (metadata[name] === undefined) throw faulty(`NO_${name.toUpperCase()}`);
  for (const name of [...REQUIRED_ENDPOINTS, ...OTHER_ENDPOINTS]) {
    const address = metadata[name];
    if (address === undefined) continue;
    const url = URL.parse(address);
    if (url === null || !isSafe(url)) throw faulty(`UNSAFE_${name.toUpperCase()}`);
  }
}

/** `code` is one word for the log. */
const faulty = (code: string) => Object.assign(new Error('the metadata cannot be used'), { code });

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
