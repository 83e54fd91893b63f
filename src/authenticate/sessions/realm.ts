import type { Config } from '../../config/config.ts';

/** Where users are known: a subject may be somebody else at another provider, or for another client (OpenID Connect Core §8). */
export function realmOf({ authMode, oidc }: Pick<Config, 'authMode' | 'oidc'>): string {
  return authMode === 'oidc' ? `oidc ${oidc.issuer} ${oidc.clientId}` : authMode;
}
