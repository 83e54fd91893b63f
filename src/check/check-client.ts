import type { Configuration } from 'openid-client';
import { callbackUrlOf } from '../authenticate/oidc/identity-provider.ts';
import { proveClient } from '../authenticate/oidc/prove-client.ts';
import type { Config } from '../config/config.ts';
import type { Finding, Report } from './findings.ts';

type Metadata = ReturnType<Configuration['serverMetadata']>;

/** Checks whether the identity provider knows the relay as its client, and offers the scopes and logout that it uses. */
export async function checkClient(
  config: Config,
  configuration: Configuration,
  report: Report,
): Promise<void> {
  const { clientId, scopes } = config.oidc;
  const { said, client } = await proveClient(configuration, callbackUrlOf(config));
  const found: Readonly<Record<typeof client, Omit<Finding, 'check'>>> = {
    known: {
      state: 'ok',
      says: `its id and secret are right: the provider refuses a made-up code alone (${said})`,
    },
    refused: {
      state: 'problem',
      says: `the provider does not accept it (${said})`,
      advice:
        'Look at OIDC_CLIENT_ID, at OIDC_CLIENT_SECRET, and at the client there: it may use authorization codes, and ' +
        'proves who it is by client_secret_basic or client_secret_post.',
    },
    unproven: {
      state: 'note',
      says: `not proven: the answer to a made-up code was ${said}`,
      advice: 'Sign in once in a browser.',
    },
  };
  report({ check: 'client', about: clientId, ...found[client] });
  const metadata = configuration.serverMetadata();
  reportScopes(metadata, scopes.split(' '), report);
  reportLogout(metadata, report);
}

/** A provider need not list all its scopes, but it must list `openid` (OpenID Connect Discovery 1.0 §3). */
function reportScopes({ scopes_supported: named }: Metadata, wanted: readonly string[], report: Report) {
  if (!Array.isArray(named)) return;
  const check = 'scopes';
  const missing = wanted.filter((scope) => !named.includes(scope));
  const says = `the provider does not name ${missing.join(', ')}`;
  if (missing.length === 0) report({ state: 'ok', check, says: 'the provider has all of OIDC_SCOPES' });
  else if (missing.includes('openid')) {
    const advice = 'Look at OIDC_ISSUER: without openid it is no OpenID provider.';
    report({ state: 'problem', check, says, advice });
  } else {
    const advice =
      'Look at OIDC_SCOPES and at the scopes of the client there; some providers do not name all.';
    report({ state: 'note', check, says, advice });
  }
}

function reportLogout(metadata: Metadata, report: Report): void {
  const note = (says: string) => report({ state: 'note', check: 'logout', says });
  if (metadata.end_session_endpoint === undefined)
    note('the provider has no end_session_endpoint: a user who signs out here stays signed in there');
  if (metadata.backchannel_logout_supported !== true)
    note('the provider names no back-channel logout: a user who signs out there stays signed in here');
}
