import { redisAddress } from '../storage/redis-address.ts';
import { isKeyOf } from '../storage/redis-settings.ts';
import { ALLOW_ASSISTANT, ASSISTANT, MODEL_KEYS, NEED_ENDPOINT, NEED_NO_KEY } from './service-model.ts';
import type { Values, VariableName } from './variables.ts';

const REQUIRED_IN_PRODUCTION = [
  'PUBLIC_URL',
  'UPSTREAM_BASE_URL',
  'UPSTREAM_API_KEYS',
  'BOTS',
  'SESSION_SECRETS',
] as const;

const REDIS_TLS = ['REDIS_TLS_CA', 'REDIS_TLS_CERT', 'REDIS_TLS_KEY', 'REDIS_TLS_SERVERNAME'] as const;
const REDIS_SENTINEL = ['REDIS_SENTINEL_MASTER', 'REDIS_SENTINEL_USER', 'REDIS_SENTINEL_PASSWORD'] as const;
const REQUIRED_BY_OIDC = ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'] as const;

/** Problems of variables that contradict each other, so that one has no effect or does not protect. */
export function contradictions(values: Values, faulty: ReadonlySet<VariableName>): string[] {
  const isSet = isSetIn(values, faulty);
  const { COOKIE_SAME_SITE, PUBLIC_URL, METRICS_PORT, PORT, AUTH_MODE } = values;
  const problems = [
    ...redisTlsProblems(values, isSet),
    ...redisModeProblems(values, isSet),
    ...serviceContradictions(values, faulty),
  ];
  if (COOKIE_SAME_SITE === 'none' && PUBLIC_URL?.protocol !== 'https:') {
    problems.push('COOKIE_SAME_SITE=none needs an https PUBLIC_URL');
  }
  if (METRICS_PORT !== undefined && METRICS_PORT === PORT) {
    problems.push('METRICS_PORT must not be PORT: metrics are not for the public');
  }
  if (isSet('CORS_HEADERS') && !isSet('ALLOWED_ORIGINS'))
    problems.push(
      'CORS_HEADERS is set, but ALLOWED_ORIGINS is not: no page of another origin may send anything',
    );
  const { CHANNEL_SECRET, SESSION_SECRETS = [] } = values;
  if (CHANNEL_SECRET && SESSION_SECRETS.some(({ fingerprint }) => fingerprint === CHANNEL_SECRET.fingerprint))
    problems.push(
      'CHANNEL_SECRET must not be one of SESSION_SECRETS: those are replaced from time to time, and it never is',
    );
  const { CHAT_PAGE, BOTS } = values;
  if (CHAT_PAGE && BOTS?.every((bot) => bot.includes('*')))
    problems.push('CHAT_PAGE is on, but each entry of BOTS has a *: the page would have no bot to talk with');
  const { SERVICE_MODEL, UPSTREAM_BASE_URL } = values;
  if (SERVICE_MODEL && !UPSTREAM_BASE_URL && BOTS && !BOTS.some((bot) => ALLOW_ASSISTANT.includes(bot)))
    problems.push(`SERVICE_MODEL is set, but BOTS does not allow ${ASSISTANT}, which answers with it`);
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

function redisTlsProblems(values: Values, isSet: (name: VariableName) => boolean): string[] {
  const { REDIS_URL, REDIS_TLS_CERT, REDIS_TLS_KEY } = values;
  const without = REDIS_URL && !redisAddress(REDIS_URL).tls ? REDIS_TLS.filter(isSet) : [];
  const problems = without.map(
    (name) => `${name} is set, but REDIS_URL is not rediss://: the connection would not be encrypted`,
  );
  if (REDIS_TLS_CERT && REDIS_TLS_KEY && !isKeyOf(REDIS_TLS_KEY, REDIS_TLS_CERT))
    problems.push('REDIS_TLS_KEY is not the key of the first certificate of REDIS_TLS_CERT');
  return problems;
}

function redisModeProblems(values: Values, isSet: (name: VariableName) => boolean): string[] {
  const { REDIS_URL, REDIS_MODE } = values;
  const problems =
    REDIS_MODE === undefined || REDIS_MODE === 'sentinel'
      ? []
      : REDIS_SENTINEL.filter(isSet).map((name) => `${name} is set, but REDIS_MODE is not sentinel`);
  if (!REDIS_URL) return problems;
  const { nodes, database } = redisAddress(REDIS_URL);
  if (REDIS_MODE === 'single' && nodes.length > 1)
    problems.push('REDIS_URL has several servers, but REDIS_MODE is single: set it to cluster or sentinel');
  if (REDIS_MODE === 'cluster' && database !== 0)
    problems.push('REDIS_URL has a database, but REDIS_MODE is cluster: a cluster has only the database 0');
  return problems;
}

/** Problems of variables of the bot service that contradict each other. */
export function serviceContradictions(values: Values, faulty: ReadonlySet<VariableName>): string[] {
  const isSet = isSetIn(values, faulty);
  const { SERVICE_PORT, SERVICE_CONSOLE_PORT } = values;
  const problems: string[] = [];
  if (isSet('SERVICE_ENDPOINT') && !isSet('SERVICE_MODEL'))
    problems.push('SERVICE_ENDPOINT is set, but SERVICE_MODEL is not: no model would be asked there');
  if (
    SERVICE_CONSOLE_PORT !== undefined &&
    SERVICE_CONSOLE_PORT !== 0 &&
    SERVICE_CONSOLE_PORT === SERVICE_PORT
  )
    problems.push(
      'SERVICE_CONSOLE_PORT must not be SERVICE_PORT: the console is not for those who call bots',
    );
  return problems;
}

/** Tells whether a variable is set, to a valid value or not. */
function isSetIn(values: Values, faulty: ReadonlySet<VariableName>): (name: VariableName) => boolean {
  return (name) => values[name] !== undefined || faulty.has(name);
}

/** Problems of variables that must be set and are not, with the reason. */
export function missingVariables(values: Values, faulty: ReadonlySet<VariableName>): string[] {
  const isSet = isSetIn(values, faulty);
  const { NODE_ENV, AUTH_MODE, CHANNELS, REDIS_MODE, SERVICE_MODEL } = values;
  const missing = new Map<VariableName, string>();
  const require = (names: readonly VariableName[], why: string) => {
    for (const name of names) if (!isSet(name) && !missing.has(name)) missing.set(name, why);
  };
  if (NODE_ENV === 'production') require(REQUIRED_IN_PRODUCTION, 'in production');
  if (AUTH_MODE === 'oidc') require(REQUIRED_BY_OIDC, 'with AUTH_MODE=oidc');
  if (isSet('UPSTREAM_BASE_URL')) require(['UPSTREAM_API_KEYS', 'BOTS'], 'with UPSTREAM_BASE_URL');
  if (isSet('UPSTREAM_API_KEYS')) require(['UPSTREAM_BASE_URL'], 'with UPSTREAM_API_KEYS');
  if (isSet('BOTS_FILE')) require(['UPSTREAM_BASE_URL'], 'with BOTS_FILE');
  for (const name of REDIS_TLS) if (isSet(name)) require(['REDIS_URL'], `with ${name}`);
  if (isSet('REDIS_TLS_CERT')) require(['REDIS_TLS_KEY'], 'with REDIS_TLS_CERT');
  if (isSet('REDIS_TLS_KEY')) require(['REDIS_TLS_CERT'], 'with REDIS_TLS_KEY');
  if (REDIS_MODE === 'cluster' || REDIS_MODE === 'sentinel')
    require(['REDIS_URL'], `with REDIS_MODE=${REDIS_MODE}`);
  if (REDIS_MODE === 'sentinel') require(['REDIS_SENTINEL_MASTER'], 'with REDIS_MODE=sentinel');
  if (isSet('REDIS_SENTINEL_USER')) require(['REDIS_SENTINEL_PASSWORD'], 'with REDIS_SENTINEL_USER');
  // Without it, nothing that is kept could be opened after the next start.
  if (isSet('SERVICE_DATA')) require(['SERVICE_SECRET'], 'with SERVICE_DATA');
  if (SERVICE_MODEL) {
    const { kind } = SERVICE_MODEL;
    const why = `with SERVICE_MODEL=${kind}/…`;
    if (!NEED_NO_KEY.includes(kind)) require([MODEL_KEYS[kind]], why);
    if (NEED_ENDPOINT.includes(kind)) require(['SERVICE_ENDPOINT'], why);
  }
  // All instances must be able to open the same sessions.
  if (isSet('REDIS_URL')) require(['SESSION_SECRETS'], 'with REDIS_URL');
  // With another secret, another instance or a restart would name other conversations.
  const nameConversations = (why: string) => {
    if (CHANNELS === 'scoped') require(['CHANNEL_SECRET'], `${why}, unless CHANNELS is shared`);
  };
  if (NODE_ENV === 'production') nameConversations('in production');
  if (isSet('REDIS_URL')) nameConversations('with REDIS_URL');
  return [...missing].map(([name, why]) => `${name} must be set ${why}`);
}
