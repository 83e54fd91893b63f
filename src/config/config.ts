import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { BotSettings } from '../bots/bot-settings.ts';
import { readBotsFile } from '../bots/bots-file.ts';
import { readSecretFile } from '../bots/secret-file.ts';
import { hostNameOf } from '../http/hosts.ts';
import { type Secret, secret } from '../secret.ts';
import type { Environment, Sources } from './environment.ts';
import { misnamed, unusedVariables, withoutServiceLinks } from './names.ts';
import { contradictions, missingVariables } from './rules.ts';
import { VARIABLES, type Values, type VariableName } from './variables.ts';

/** Everything the relay can be told, checked and frozen. Times in ms, sizes in bytes. */
export type Config = ReturnType<typeof assemble>;

/** Thrown when the environment does not make a configuration; `problems` names them all, in plain words. */
export class ConfigError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[], message = listed(problems)) {
    super(message);
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

function listed(problems: readonly string[]): string {
  return `The configuration has ${problems.length} problem(s):\n${problems.map((one) => `  - ${one}`).join('\n')}`;
}

/** Longer than a load balancer takes to see twice, a second apart, that a relay is not ready. */
const PRODUCTION_DELAY_MS = 5_000;

/** @throws ConfigError if a name is mistyped, or unknown in `.env`. */
export function checkNames({ environment, inFile = [] }: Sources): void {
  const problems = misnamed(environment, inFile);
  if (problems.length > 0) throw new ConfigError(problems);
}

/**
 * Reads the environment. An empty variable counts as not set.
 * @throws ConfigError with every problem at once; no message holds a value that was set.
 */
export function loadConfig(given: Environment, inFile: Sources['inFile'] = []): Config {
  const environment = withoutServiceLinks(given);
  const reading: Reading = { values: {}, faulty: new Set(), problems: [] };
  for (const name of Object.keys(VARIABLES) as VariableName[]) readVariable(name, environment, reading);
  const values = reading.values as Values;
  const botsFile = values.BOTS_FILE ? readBotsFile(values.BOTS_FILE, values.BOTS) : undefined;
  const problems = [
    ...misnamed(environment, inFile),
    ...reading.problems,
    ...(botsFile?.problems ?? []),
    ...missingVariables(values, reading.faulty),
    ...contradictions(values, reading.faulty),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  const keyFiles = { apiKeys: environment.UPSTREAM_API_KEYS_FILE || undefined, bots: values.BOTS_FILE };
  const unused = unusedVariables(given);
  return deepFreeze(assemble(values, { own: botsFile?.own ?? {}, keyFiles, unused }));
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

/** What is known besides the values of the variables. */
interface Besides extends Pick<BotSettings, 'own'> {
  /** The files that may change while the relay runs. */
  readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
  /** What of the environment does nothing, as risks. */
  readonly unused: readonly string[];
}

function assemble(values: Values, { own, keyFiles, unused }: Besides) {
  const demo = isDemo(values);
  const minutes = 60_000;
  return {
    demo,
    production: values.NODE_ENV === 'production',
    unused,
    logLevel: values.LOG_LEVEL,
    port: values.PORT,
    /** How many processes serve together; 1 is this process alone. */
    workers: values.WORKERS === 'auto' ? availableParallelism() : Number(values.WORKERS),
    /** Metrics are kept only if there is one. */
    metricsPort: values.METRICS_PORT,
    host: values.HOST ?? (demo ? '127.0.0.1' : '0.0.0.0'),
    basePath: values.BASE_PATH ?? '',
    publicUrl: publicUrlOf(values),
    trustProxy: values.TRUST_PROXY ?? false,
    allowedOrigins: values.ALLOWED_ORIGINS ?? [],
    hosts: hostsOf(values),
    shutdown: {
      delayMs: values.SHUTDOWN_DELAY_MS ?? (values.NODE_ENV === 'production' ? PRODUCTION_DELAY_MS : 0),
      graceMs: values.SHUTDOWN_GRACE_MS,
    },
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
    login: {
      maxFailures: values.LOGIN_MAX_FAILURES,
      maxFailuresPerAddress: values.LOGIN_MAX_FAILURES_PER_ADDRESS,
      windowMs: values.LOGIN_WINDOW_MS,
    },
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

function isDemo({ UPSTREAM_BASE_URL }: Values): boolean {
  return UPSTREAM_BASE_URL === undefined;
}

function publicUrlOf({ PUBLIC_URL, PORT }: Values): Readonly<URL> {
  return PUBLIC_URL ?? new URL(`http://localhost:${PORT}`);
}

/** The names that the relay answers to; undefined where the load balancer's own routing decides. */
function hostsOf(values: Values) {
  const { ALLOWED_HOSTS } = values;
  const demo = isDemo(values);
  if (!demo && !ALLOWED_HOSTS) return undefined;
  const names = [hostNameOf(publicUrlOf(values).hostname), ...(ALLOWED_HOSTS ?? [])];
  return { names: names.filter((name) => name !== undefined), loopback: demo };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !(value instanceof URL) && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
