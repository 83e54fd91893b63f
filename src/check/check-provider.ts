import { providerProblem } from '../authenticate/oidc/provider-errors.ts';
import { discover } from '../authenticate/oidc/provider-metadata.ts';
import type { Config } from '../config/config.ts';
import { checkClient } from './check-client.ts';
import { adviceFor } from './failure-advice.ts';
import type { Report } from './findings.ts';

/**
 * Asks the identity provider for its discovery document (OpenID Connect Discovery 1.0 §4), as the relay does, and
 * then whether it knows the relay.
 * Returns where it signs users in; undefined if the document cannot be used.
 */
export async function checkProvider(config: Config, report: Report): Promise<string | undefined> {
  const { oidc } = config;
  const [check, about] = ['identity provider', oidc.issuer.host];
  const from = performance.now();
  try {
    const { configuration } = await discover(oidc);
    const discoveryMs = performance.now() - from;
    const says = `its discovery document came in ${Math.round(discoveryMs)} ms`;
    report({ state: 'ok', check, about, says, measured: { discoveryMs } });
    await checkClient(config, configuration, report);
    return configuration.serverMetadata().authorization_endpoint;
  } catch (error) {
    const code = String(providerProblem(error).cause);
    const says = `its discovery document cannot be had (${code})`;
    report({ state: 'problem', check, about, says, advice: adviceOn(code) });
    return undefined;
  }
}

const NO_PROVIDER =
  'Look at OIDC_ISSUER: OIDC_ISSUER/.well-known/openid-configuration must be the document of an OpenID provider.';

function adviceOn(code: string): string {
  if (code === 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED') {
    return 'Set OIDC_ISSUER to exactly what the document has as its issuer, with or without a slash at the end.';
  }
  if (/timeout/i.test(code)) return adviceFor('ETIMEDOUT');
  if (/^HTTP_5/.test(code))
    return 'It fails, or what stands before it: ask its operator; then look at OIDC_ISSUER.';
  if (/^(OAUTH|HTTP|NO|UNSAFE)_\w+$/.test(code)) return NO_PROVIDER;
  return adviceFor(code === 'UND_ERR_SOCKET' ? 'ECONNRESET' : code);
}
