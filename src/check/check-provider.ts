import type { Configuration } from 'openid-client';
import { callbackUrlOf } from '../authenticate/oidc/identity-provider.ts';
import { proveClient } from '../authenticate/oidc/prove-client.ts';
import { providerProblem } from '../authenticate/oidc/provider-errors.ts';
import { discover } from '../authenticate/oidc/provider-metadata.ts';
import type { Config } from '../config/config.ts';
import { adviceFor } from './advice.ts';
import type { CheckReport } from './report.ts';

type Metadata = ReturnType<Configuration['serverMetadata']>;

/**
 * Asks the identity provider for its discovery document (OpenID Connect Discovery 1.0 §4), as the relay does, and
 * whether it knows the relay as its client and offers the scopes and the logout that the relay uses.
 * Returns where it signs users in; undefined if the document cannot be used.
 */
export async function checkProvider(config: Config, report: CheckReport): Promise<string | undefined> {
  const { oidc } = config;
  const { add, problem } = report.about('identity provider', oidc.issuer.host);
  const from = performance.now();
  try {
    const { configuration } = await discover(oidc);
    const discoveryMs = performance.now() - from;
    const says = `its discovery document came in ${Math.round(discoveryMs)} ms`;
    add({ state: 'ok', says, measured: { discoveryMs } });
    await checkClient(config, configuration, report);
    const metadata = configuration.serverMetadata();
    reportScopes(metadata, oidc.scopes.split(' '), report);
    reportLogout(metadata, report);
    return metadata.authorization_endpoint;
  } catch (error) {
    const code = String(providerProblem(error).cause);
    problem(`its discovery document cannot be had (${code})`, adviceOn(code));
    return undefined;
  }
}

function adviceOn(code: string): string {
  if (code === 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED')
    return 'Set OIDC_ISSUER to exactly what the document has as its issuer, with or without a slash at the end.';
  if (/timeout/i.test(code)) return adviceFor('ETIMEDOUT');
  if (/^HTTP_5/.test(code))
    return 'It fails, or what stands before it: ask its operator; then look at OIDC_ISSUER.';
  if (/^(OAUTH|HTTP|NO|UNSAFE)_\w+$/.test(code))
    return 'Look at OIDC_ISSUER: OIDC_ISSUER/.well-known/openid-configuration must be the document of an OpenID provider.';
  return adviceFor(code === 'UND_ERR_SOCKET' ? 'ECONNRESET' : code);
}

async function checkClient(config: Config, configuration: Configuration, report: CheckReport): Promise<void> {
  const { ok, note, problem } = report.about('client', config.oidc.clientId);
  const { said, client } = await proveClient(configuration, callbackUrlOf(config));
  if (client === 'known')
    ok(`its id and secret are right: the provider refuses a made-up code alone (${said})`);
  else if (client === 'refused') {
    const proof =
      'it may use authorization codes, and proves who it is by client_secret_basic or client_secret_post.';
    const advice = `Look at OIDC_CLIENT_ID, at OIDC_CLIENT_SECRET, and at the client there: ${proof}`;
    problem(`the provider does not accept it (${said})`, advice);
  } else note(`not proven: the answer to a made-up code was ${said}`, 'Sign in once in a browser.');
}

/** A provider need not list all its scopes, but it must list `openid` (OpenID Connect Discovery 1.0 §3). */
function reportScopes(metadata: Metadata, wanted: readonly string[], report: CheckReport): void {
  const { scopes_supported: named } = metadata;
  if (!Array.isArray(named)) return;
  const { ok, note, problem } = report.about('scopes');
  const missing = wanted.filter((scope) => !named.includes(scope));
  const says = `the provider does not name ${missing.join(', ')}`;
  if (missing.length === 0) ok('the provider has all of OIDC_SCOPES');
  else if (missing.includes('openid'))
    problem(says, 'Look at OIDC_ISSUER: without openid it is no OpenID provider.');
  else
    note(says, 'Look at OIDC_SCOPES and at the scopes of the client there; some providers do not name all.');
}

function reportLogout(metadata: Metadata, report: CheckReport): void {
  const { note } = report.about('logout');
  if (metadata.end_session_endpoint === undefined)
    note('the provider has no end_session_endpoint: a user who signs out here stays signed in there');
  if (metadata.backchannel_logout_supported !== true)
    note('the provider names no back-channel logout: a user who signs out there stays signed in here');
}
