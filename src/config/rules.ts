import type { Values, VariableName } from './variables.ts';

const REQUIRED_IN_PRODUCTION = [
  'PUBLIC_URL',
  'UPSTREAM_BASE_URL',
  'UPSTREAM_API_KEYS',
  'BOTS',
  'SESSION_SECRETS',
] as const;

/** Workers share nothing but Redis. */
const REQUIRED_BY_WORKERS = ['REDIS_URL', 'SESSION_SECRETS', 'UPSTREAM_BASE_URL'] as const;
const REQUIRED_BY_OIDC = ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'] as const;

/** What is set to something that is no use, or no protection, beside something else. */
export function contradictions(values: Values, faulty: ReadonlySet<VariableName>): string[] {
  const isSet = isSetIn(values, faulty);
  const { COOKIE_SAME_SITE, PUBLIC_URL, METRICS_PORT, PORT, AUTH_MODE } = values;
  const problems: string[] = [];
  if (COOKIE_SAME_SITE === 'none' && PUBLIC_URL?.protocol !== 'https:') {
    problems.push('COOKIE_SAME_SITE=none needs an https PUBLIC_URL');
  }
  if (METRICS_PORT !== undefined && METRICS_PORT === PORT) {
    problems.push('METRICS_PORT must not be PORT: metrics are not for the public');
  }
  if (AUTH_MODE === 'oidc' && PORT === 0 && !isSet('PUBLIC_URL')) {
    problems.push('PUBLIC_URL must be set with AUTH_MODE=oidc and PORT=0: the provider sends browsers there');
  }
  if (faulty.has('AUTH_MODE') || AUTH_MODE === 'oidc') return problems;
  if (isSet('OIDC_ISSUER')) {
    problems.push('OIDC_ISSUER is set, but AUTH_MODE is not oidc: nobody would be sent there to sign in');
  }
  if (isSet('OIDC_REQUIRED_CLAIM')) {
    problems.push('OIDC_REQUIRED_CLAIM is set, but AUTH_MODE is not oidc: it would keep nobody out');
  }
  return problems;
}

/** Whether a variable is set, be it to something that can be used or not. */
function isSetIn(values: Values, faulty: ReadonlySet<VariableName>): (name: VariableName) => boolean {
  return (name) => values[name] !== undefined || faulty.has(name);
}

/** What is not set and must be, with why. */
export function missingVariables(values: Values, faulty: ReadonlySet<VariableName>): string[] {
  const isSet = isSetIn(values, faulty);
  const { WORKERS, NODE_ENV, AUTH_MODE } = values;
  const asked = new Map<VariableName, string>();
  const ask = (names: readonly VariableName[], why: string) => {
    for (const name of names) if (!isSet(name) && !asked.has(name)) asked.set(name, why);
  };
  if (NODE_ENV === 'production') ask(REQUIRED_IN_PRODUCTION, 'in production');
  if (AUTH_MODE === 'oidc') ask(REQUIRED_BY_OIDC, 'with AUTH_MODE=oidc');
  if (isSet('UPSTREAM_BASE_URL')) ask(['UPSTREAM_API_KEYS', 'BOTS'], 'with UPSTREAM_BASE_URL');
  if (isSet('UPSTREAM_API_KEYS')) ask(['UPSTREAM_BASE_URL'], 'with UPSTREAM_API_KEYS');
  if (isSet('BOTS_FILE')) ask(['UPSTREAM_BASE_URL'], 'with BOTS_FILE');
  // What one instance signs, the others must be able to verify.
  if (isSet('REDIS_URL')) ask(['SESSION_SECRETS'], 'with REDIS_URL');
  // Also where `auto` comes to one: what starts on one machine has to start on the next.
  if (WORKERS !== undefined && WORKERS !== '1') ask(REQUIRED_BY_WORKERS, 'with WORKERS other than 1');
  return [...asked].map(([name, why]) => `${name} must be set ${why}`);
}
