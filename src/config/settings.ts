import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { BotSettings } from '../bots/bot-settings.ts';
import { hostNameOf } from '../http/hosts.ts';
import { type Secret, secret } from '../secret.ts';
import type { Values } from './variables.ts';

/** Longer than a load balancer takes to see twice, a second apart, that a relay is not ready. */
const PRODUCTION_DELAY_MS = 5_000;
const MINUTE_MS = 60_000;

/** What is known besides the values of the variables. */
export interface Besides extends Pick<BotSettings, 'own'> {
  /** The files that may change while the relay runs. */
  readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
  /** What of the environment does nothing, as risks. */
  readonly unused: readonly string[];
}

/** What the variables say, by what it is for, with what follows where they say nothing. Times in ms, sizes in bytes. */
export function settingsOf(values: Values, besides: Besides) {
  const demo = isDemo(values);
  return {
    demo,
    production: values.NODE_ENV === 'production',
    unused: besides.unused,
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
    upstream: upstreamOf(values, besides),
    bots: values.BOTS ?? ['demo/echo'],
    maxBodyBytes: values.MAX_BODY_BYTES,
    ...limitsOf(values),
    session: sessionOf(values),
    redisUrl: values.REDIS_URL as Secret | undefined,
    authMode: values.AUTH_MODE,
    usersFile: values.USERS_FILE,
    guestsPerAddress: values.GUESTS_PER_ADDRESS,
    /** Everything is there with `authMode` `oidc`. */
    oidc: oidcOf(values),
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

function upstreamOf(values: Values, { own, keyFiles }: Besides) {
  return {
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
  };
}

/** How much there may be of what, and how often. */
function limitsOf(values: Values) {
  return {
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
  };
}

function sessionOf(values: Values) {
  return {
    secrets: (values.SESSION_SECRETS ?? [secret(randomBytes(48).toString('base64url'))]) as readonly Secret[],
    idleMs: values.SESSION_IDLE_MINUTES * MINUTE_MS,
    absoluteMs: values.SESSION_ABSOLUTE_HOURS * 60 * MINUTE_MS,
    sameSite: values.COOKIE_SAME_SITE,
  };
}

function oidcOf(values: Values) {
  return {
    issuer: values.OIDC_ISSUER as Readonly<URL>,
    clientId: values.OIDC_CLIENT_ID as string,
    clientSecret: values.OIDC_CLIENT_SECRET as Secret,
    scopes: values.OIDC_SCOPES,
    requiredClaim: values.OIDC_REQUIRED_CLAIM,
    keepIdToken: values.OIDC_KEEP_ID_TOKEN,
  };
}
