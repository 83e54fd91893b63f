import { setTimeout as sleep } from 'node:timers/promises';
import * as oidc from 'openid-client';
import { isLoopback } from '../../http/hosts.ts';
import type { Logger } from '../../logger.ts';
import type { Secret } from '../../secret.ts';
import { providerProblem, providerUnavailable } from './provider-errors.ts';
import { boundedFetch, type Fetch, throttled } from './provider-fetch.ts';
import { providerKeys } from './provider-keys.ts';

/** How long one request to the provider may take, in seconds. */
const TIMEOUT_S = 5;
/** How far the provider's clock may be off, in seconds. */
export const CLOCK_TOLERANCE_S = 30;
/** How long the metadata is used before it is fetched again, in ms. */
const MAX_AGE_MS = 3_600_000;
/** How long after a failure it is fetched again, in ms. The old metadata is used until then. */
const FAILED_MAX_AGE_MS = 60_000;
/** How long a sign-in or sign-out waits for newer metadata, in ms, before it uses the old one. */
const MAX_WAIT_MS = 500;
/** The shortest time between two requests for the metadata, in ms. */
const MIN_INTERVAL_MS = 250;

/** Endpoints without which no sign-in is possible (OpenID Connect Discovery 1.0 §3). */
const REQUIRED_ENDPOINTS = ['jwks_uri', 'authorization_endpoint', 'token_endpoint'] as const;
const OTHER_ENDPOINTS = ['userinfo_endpoint', 'end_session_endpoint'] as const;

export interface ProviderMetadataOptions {
  readonly issuer: Readonly<URL>;
  readonly clientId: string;
  readonly clientSecret: Secret;
  readonly logger: Logger;
  /** In place of the global `fetch`. */
  readonly fetch?: Fetch;
}

/** The provider's metadata, and its keys. */
export interface ProviderMetadata {
  readonly configuration: oidc.Configuration;
  readonly keys: ReturnType<typeof providerKeys>;
}

/**
 * Makes the function that returns the provider's metadata (OpenID Connect Discovery 1.0). It is fetched when it is first
 * needed, once for all callers, and again when it is old. While that fails, or takes long, the old metadata is used.
 * The function throws Problem `identity_provider_unavailable` if there is none.
 */
export function providerMetadata(options: ProviderMetadataOptions): () => Promise<ProviderMetadata> {
  let last: ProviderMetadata | undefined;
  let fetchAt = Number.NEGATIVE_INFINITY;
  let hasFailed = false;
  const { logger } = options;
  const issuer = options.issuer.origin;

  const fetchMetadata = throttled(async () => {
    try {
      const isNews = last === undefined || hasFailed;
      last = await discover(options);
      hasFailed = false;
      fetchAt = performance.now() + MAX_AGE_MS;
      if (isNews) logger.info({ issuer }, 'identity provider discovered');
      return last;
    } catch (error) {
      const { cause } = providerProblem(error);
      hasFailed = true;
      logger.error({ issuer, cause }, 'identity provider not discovered');
      if (last === undefined) throw providerUnavailable(cause);
      fetchAt = performance.now() + FAILED_MAX_AGE_MS;
      return last;
    }
  }, MIN_INTERVAL_MS);

  return async () => {
    if (last === undefined) return fetchMetadata();
    if (performance.now() < fetchAt) return last;
    return Promise.race([fetchMetadata(), sleep(MAX_WAIT_MS, last, { ref: false })]);
  };
}

/** Fetches the metadata once. @throws the library's error, or an error whose code says what is wrong with the metadata */
export async function discover(options: Omit<ProviderMetadataOptions, 'logger'>): Promise<ProviderMetadata> {
  const { issuer, clientId, clientSecret } = options;
  const bounded = boundedFetch(options.fetch ?? fetch);
  const configuration = await oidc.discovery(
    new URL(issuer),
    clientId,
    { [oidc.clockTolerance]: CLOCK_TOLERANCE_S },
    clientAuthentication(clientSecret),
    {
      timeout: TIMEOUT_S,
      [oidc.customFetch]: bounded as oidc.CustomFetch,
      ...(issuer.protocol === 'http:' && { execute: [oidc.allowInsecureRequests] }),
    },
  );
  const metadata = configuration.serverMetadata();
  checkEndpoints(metadata, issuer);
  const keys = providerKeys(new URL(metadata.jwks_uri as string), {
    fetch: bounded,
    timeoutMs: TIMEOUT_S * 1000,
  });
  return { configuration, keys };
}

/**
 * Refuses metadata with an endpoint in clear text, since secrets, keys and browsers would be sent there. Endpoints on
 * this machine are allowed if the issuer is http, too.
 */
function checkEndpoints(metadata: oidc.ServerMetadata, issuer: Readonly<URL>): void {
  const issuerIsSecure = issuer.protocol === 'https:';
  const isSafe = ({ protocol, hostname }: URL) =>
    protocol === 'https:' || (protocol === 'http:' && !issuerIsSecure && isLoopback(hostname));
  for (const name of REQUIRED_ENDPOINTS)
    if (metadata[name] === undefined) throw unusable(`NO_${name.toUpperCase()}`);
  for (const name of [...REQUIRED_ENDPOINTS, ...OTHER_ENDPOINTS]) {
    const address = metadata[name];
    if (address === undefined) continue;
    const url = URL.parse(address);
    if (url === null || !isSafe(url)) throw unusable(`UNSAFE_${name.toUpperCase()}`);
  }
}

/** `code` is one word for the log. */
const unusable = (code: string) => Object.assign(new Error('the metadata cannot be used'), { code });

/** Sends the secret with Basic if the provider takes that or names no method (Discovery §3), else in the body. */
function clientAuthentication(clientSecret: Secret): oidc.ClientAuth {
  const basic = oidc.ClientSecretBasic(clientSecret.open());
  const post = oidc.ClientSecretPost(clientSecret.open());
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const authenticate = methods.includes('client_secret_basic') ? basic : post;
    authenticate(server, ...rest);
  };
}
