import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { BotSettings } from './bots/bot-settings.ts';
import { readBotsFile } from './bots/bots-file.ts';
import { readSecretFile } from './bots/secret-file.ts';
import { VARIABLES, type Values, type VariableName } from './config-variables.ts';
import { renamedVariables } from './renamed-variables.ts';
import { type Secret, secret } from './secret.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Everything the relay can be told, checked and frozen. Times in ms, sizes in bytes. */
export type Config = ReturnType<typeof assemble>;

/** Thrown when the environment does not make a configuration; `problems` names them all, in plain words. */
export class ConfigError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(
      `The configuration has ${problems.length} problem(s):\n${problems.map((p) => `  - ${p}`).join('\n')}`,
    );
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

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

/**
 * Reads the environment. An empty variable counts as not set.
 * @throws ConfigError with every problem at once; no message holds a value that was set.
 */
export function loadConfig(environment: Environment): Config {
  const reading: Reading = { values: {}, faulty: new Set(), problems: [] };
  for (const name of Object.keys(VARIABLES) as VariableName[]) readVariable(name, environment, reading);
  const values = reading.values as Values;
  const botsFile = values.BOTS_FILE ? readBotsFile(values.BOTS_FILE, values.BOTS) : undefined;
  const problems = [
    ...reading.problems,
    ...renamedVariables(environment),
    ...(botsFile?.problems ?? []),
    ...missingVariables(values, reading.faulty),
    ...contradictions(values, reading.faulty),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  const keyFiles = { apiKeys: environment.UPSTREAM_API_KEYS_FILE || undefined, bots: values.BOTS_FILE };
  return deepFreeze(assemble(values, { own: botsFile?.own ?? {}, keyFiles }));
}

interface Reading {
  readonly values: Partial<Record<VariableName, unknown>>;
  /** Variables that are set to something that cannot be used. */
  readonly faulty: Set<VariableName>;
  readonly problems: string[];
}

function readVariable(name: VariableName, environment: Environment, { values, faulty, problems }: Reading) {
  const report = (problem: string) => {
    faulty.add(name);
    problems.push(problem);
  };
  const { schema, fallback, secret: isSecret } = VARIABLES[name];
  const text = (isSecret ? secretText(name, environment, report) : environment[name]) || fallback;
  if (text === undefined) return;
  const result = schema.safeParse(text);
  if (result.success) values[name] = result.data;
  else
    for (const message of new Set(result.error.issues.map((issue) => issue.message)))
      report(`${name} ${message}`);
}

function secretText(name: VariableName, environment: Environment, report: (problem: string) => void) {
  const file = environment[`${name}_FILE`];
  if (!file) return environment[name];
  if (environment[name]) {
    report(`${name} and ${name}_FILE are both set; set one of them`);
    return undefined;
  }
  const read = readSecretFile(file);
  if ('text' in read) return read.text;
  report(`${name}_FILE ${read.problem}`);
  return undefined;
}

/** What is set to something that is no use, or no protection, beside something else. */
function contradictions(values: Values, faulty: ReadonlySet<VariableName>): string[] {
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

function missingVariables(values: Values, faulty: ReadonlySet<VariableName>): string[] {
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

/** What is read of bots besides the variables. */
interface BotSources extends Pick<BotSettings, 'own'> {
  /** The files that may change while the relay runs. */
  readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
}

function assemble(values: Values, { own, keyFiles }: BotSources) {
  const demo = values.UPSTREAM_BASE_URL === undefined;
  const port = values.PORT;
  const minutes = 60_000;
  return {
    demo,
    production: values.NODE_ENV === 'production',
    logLevel: values.LOG_LEVEL,
    port,
    /** How many processes serve together; 1 is this process alone. */
    workers: values.WORKERS === 'auto' ? availableParallelism() : Number(values.WORKERS),
    /** Metrics are kept only if there is one. */
    metricsPort: values.METRICS_PORT,
    host: values.HOST ?? (demo ? '127.0.0.1' : '0.0.0.0'),
    basePath: values.BASE_PATH ?? '',
    publicUrl: (values.PUBLIC_URL ?? new URL(`http://localhost:${port}`)) as Readonly<URL>,
    trustProxy: values.TRUST_PROXY ?? false,
    allowedOrigins: values.ALLOWED_ORIGINS ?? [],
    shutdown: { delayMs: values.SHUTDOWN_DELAY_MS, graceMs: values.SHUTDOWN_GRACE_MS },
    upstream: {
      /** `undefined` in demo mode, until the embedded bot service listens. */
      baseUrl: values.UPSTREAM_BASE_URL as Readonly<URL> | undefined,
      apiKeys: (values.UPSTREAM_API_KEYS ?? [
        secret(randomBytes(24).toString('base64url')),
      ]) as readonly Secret[],
      own,
      keyFiles,
      responseTimeoutMs: values.UPSTREAM_RESPONSE_TIMEOUT_MS,
      maxExecutionMs: values.MAX_EXECUTION_MS,
      heartbeatMs: values.HEARTBEAT_MS,
      forwardQuery: values.FORWARD_QUERY ?? [],
      userHeader: values.USER_HEADER,
    },
    bots: values.BOTS ?? ['demo/echo'],
    maxBodyBytes: values.MAX_BODY_BYTES,
    rate: {
      limit: values.RATE_LIMIT,
      windowMs: values.RATE_WINDOW_MS,
      maxWaitMs: values.RATE_MAX_WAIT_MS,
      trialMs: values.UPSTREAM_RESPONSE_TIMEOUT_MS,
    },
    maxStreams: { perUser: values.MAX_STREAMS_PER_USER, perAddress: values.MAX_STREAMS_PER_ADDRESS },
    /** 0 is no limit. */
    clientLimits: {
      perAddress: values.CLIENT_LIMIT_PER_ADDRESS,
      perSession: values.CLIENT_LIMIT_PER_SESSION,
      windowMs: values.CLIENT_WINDOW_MS,
    },
    login: { maxFailures: values.LOGIN_MAX_FAILURES, windowMs: values.LOGIN_WINDOW_MS },
    session: {
      secrets: (values.SESSION_SECRETS ?? [
        secret(randomBytes(48).toString('base64url')),
      ]) as readonly Secret[],
      idleMs: values.SESSION_IDLE_MINUTES * minutes,
      absoluteMs: values.SESSION_ABSOLUTE_HOURS * 60 * minutes,
      sameSite: values.COOKIE_SAME_SITE,
    },
    redisUrl: values.REDIS_URL as Secret | undefined,
    authMode: values.AUTH_MODE,
    usersFile: values.USERS_FILE,
    guestsPerAddress: values.GUESTS_PER_ADDRESS,
    /** Everything is there with `authMode` `oidc`. */
    oidc: {
      issuer: values.OIDC_ISSUER as Readonly<URL>,
      clientId: values.OIDC_CLIENT_ID as string,
      clientSecret: values.OIDC_CLIENT_SECRET as Secret,
      scopes: values.OIDC_SCOPES,
      requiredClaim: values.OIDC_REQUIRED_CLAIM,
      keepIdToken: values.OIDC_KEEP_ID_TOKEN,
    },
  };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !(value instanceof URL) && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
