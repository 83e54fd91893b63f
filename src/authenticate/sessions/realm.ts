import type { Config } from '../../config/config.ts';

/**
 * Where a user id is valid. The same subject may be another user at another provider, or for another client (OpenID
 * Connect Core §8), so sessions, sign-ins and limits of two realms are kept apart.
 */
export function realmOf({ authMode, oidc }: Pick<Config, 'authMode' | 'oidc'>): string {
  return authMode === 'oidc' ? `oidc ${oidc.issuer} ${oidc.clientId}` : authMode;
}
