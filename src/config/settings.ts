import { randomBytes } from 'node:crypto';
import type { BotSettings } from '../bots/bot-settings.ts';
import { hostNameOf } from '../http/hosts.ts';
import { type Secret, secret } from '../secret.ts';
import { redisAddress } from '../storage/redis-address.ts';
import type { RedisSettings, SentinelSettings } from '../storage/redis-settings.ts';
import type { ChatSettings } from './chat-file.ts';
import { ASSISTANT } from './service-model.ts';
import { demoKey, serviceOf } from './service-settings.ts';
import type { Values } from './variables.ts';

/** Enough for a load balancer that probes every second to see two failed probes, in ms. */
const PRODUCTION_DELAY_MS = 5_000;
const MINUTE_MS = 60_000;

/** Open files that are no connections of clients and none to the bot service: Redis, files, logs, metrics. */
export const OTHER_FILES = 256;
/** The open files of one stream: the connection of its client, and the one to the bot service. */
export const FILES_OF_STREAM = 2;
/** The default of MAX_CONNECTIONS where the limit of open files is higher, or not known: each takes memory, too. */
const CONNECTIONS_AT_MOST = 32_000;
const CONNECTIONS_IF_NOT_KNOWN = 4_000;
/** The least: enough to try the relay where the limit is low, which is reported as a risk at the start. */
const CONNECTIONS_AT_LEAST = 64;
/** Without a proxy, the share of one address in all connections: enough for an office, and three others have room. */
const SHARE_OF_ADDRESS = 1 / 4;

/** What the settings need besides the values of the variables. */
export interface OtherSources extends Pick<BotSettings, 'own'> {
  /** The files that may change while the relay runs. */
  readonly keyFiles: { readonly apiKeys: string | undefined; readonly bots: string | undefined };
  /** What CHAT_FILE holds. */
  readonly chat: ChatSettings;
  /** How many files this process may open; undefined if the system does not say. */
  readonly openFiles: number | undefined;
  /** Variables that have no effect, as risks in plain words. */
  readonly unused: readonly string[];
}

/** The settings, grouped by purpose, with the defaults that depend on other variables. Times in ms, sizes in bytes. */
export function settingsOf(values: Values, others: OtherSources) {
  const demo = isDemo(values);
  return {
    demo,
    production: values.NODE_ENV === 'production',
    unused: others.unused,
    logLevel: values.LOG_LEVEL,
    /** How clients are named in the log. */
    logAddresses: values.LOG_ADDRESSES,
    port: values.PORT,
    keepAliveMs: values.KEEP_ALIVE_MS,
    connections: connectionsOf(values, others),
    /** Whether the page with the chat is served. */
    chatPage: values.CHAT_PAGE,
    /** The looks and words of the chat. */
    chat: others.chat,
    /** Metrics are kept only if this is set. */
    metricsPort: values.METRICS_PORT,
    host: values.HOST ?? (demo ? '127.0.0.1' : '0.0.0.0'),
    basePath: values.BASE_PATH ?? '',
    publicUrl: publicUrlOf(values),
    trustProxy: values.TRUST_PROXY ?? false,
    allowedOrigins: values.ALLOWED_ORIGINS ?? [],
    /** The names of additional headers that pages of these origins may send. */
    corsHeaders: values.CORS_HEADERS ?? [],
    hosts: hostsOf(values),
    shutdown: {
      delayMs: values.SHUTDOWN_DELAY_MS ?? (values.NODE_ENV === 'production' ? PRODUCTION_DELAY_MS : 0),
      graceMs: values.SHUTDOWN_GRACE_MS,
    },
    upstream: upstreamOf(values, others),
    /** Whether a run is suspended when its client leaves. */
    suspendOnLeave: values.SUSPEND_ON_LEAVE,
    join: joinOf(values),
    bots: values.BOTS ?? [...(values.SERVICE_MODEL ? [ASSISTANT] : []), 'demo/echo'],
    /** The groups of operations that are enabled for bots without groups of their own. */
    operations: values.OPERATIONS,
    channels: channelsOf(values),
    maxBodyBytes: values.MAX_BODY_BYTES,
    maxUploadBytes: values.MAX_UPLOAD_BYTES,
    ...limitsOf(values),
    session: sessionOf(values),
    redis: redisOf(values),
    authMode: values.AUTH_MODE,
    usersFile: values.USERS_FILE,
    guestsPerAddress: values.GUESTS_PER_ADDRESS,
    /** All of these are set if `authMode` is `oidc`. */
    oidc: oidcOf(values),
    service: serviceOf(values),
  };
}

/** How many connections of clients there may be, in all and of one address. */
function connectionsOf({ MAX_CONNECTIONS, TRUST_PROXY }: Values, { openFiles }: OtherSources) {
  const fit = openFiles ? (openFiles - OTHER_FILES) / FILES_OF_STREAM : CONNECTIONS_IF_NOT_KNOWN;
  const usual = Math.max(CONNECTIONS_AT_LEAST, Math.min(Math.floor(fit), CONNECTIONS_AT_MOST));
  const most = MAX_CONNECTIONS ?? usual;
  return {
    most,
    /** A proxy that is trusted has the connections of all clients. */
    mostOfAddress: TRUST_PROXY ? Number.POSITIVE_INFINITY : Math.max(1, Math.floor(most * SHARE_OF_ADDRESS)),
    isSet: MAX_CONNECTIONS !== undefined,
    openFiles,
  };
}

function channelsOf(values: Values) {
  return {
    mode: values.CHANNELS,
    secret: values.CHANNEL_SECRET ?? secret(randomBytes(48).toString('base64url')),
    /** If not, each start has another secret. */
    secretIsSet: values.CHANNEL_SECRET !== undefined,
    /** If not set, the realm of the way to sign in. */
    realm: values.CHANNEL_REALM,
  };
}

function isDemo({ UPSTREAM_BASE_URL }: Values): boolean {
  return UPSTREAM_BASE_URL === undefined;
}

function publicUrlOf({ PUBLIC_URL, PORT }: Values): Readonly<URL> {
  return PUBLIC_URL ?? new URL(`http://localhost:${PORT}`);
}

/** The host names that the relay serves; undefined if the load balancer alone routes by name. */
function hostsOf(values: Values) {
  const { ALLOWED_HOSTS } = values;
  const demo = isDemo(values);
  if (!demo && !ALLOWED_HOSTS) return undefined;
  const names = [hostNameOf(publicUrlOf(values).hostname), ...(ALLOWED_HOSTS ?? [])];
  return { names: names.filter((name) => name !== undefined), loopback: demo };
}

function upstreamOf(values: Values, { own, keyFiles }: OtherSources) {
  return {
    /** `undefined` in demo mode, until the embedded bot service listens. */
    baseUrl: values.UPSTREAM_BASE_URL as Readonly<URL> | undefined,
    apiKeys: (values.UPSTREAM_API_KEYS ?? [demoKey(values)]) as readonly Secret[],
    /** What BOTS_FILE sets for single bots. */
    own,
    keyFiles,
    responseTimeoutMs: values.UPSTREAM_RESPONSE_TIMEOUT_MS,
    maxExecutionMs: values.MAX_EXECUTION_MS,
    heartbeatMs: values.HEARTBEAT_MS,
    /** Whether a stream that broke is resumed. */
    resume: values.RESUME_UPSTREAM,
    /** Whether a run that ends without its end event has broken. */
    endEvents: values.END_EVENTS,
    forwardQuery: values.FORWARD_QUERY ?? [],
    userHeader: values.USER_HEADER,
  };
}

/** How runs can be joined, and how long. */
function joinOf(values: Values) {
  return {
    isOn: values.JOIN,
    /** How long a run is kept after its end. */
    keepMs: values.JOIN_KEEP_MS,
    /** How long its name is remembered after that. */
    rememberMs: values.JOIN_REMEMBER_MS,
    /** The grace: how long a run goes on after its last client has left. */
    graceMs: values.JOIN_GRACE_MS,
    maxBytes: values.JOIN_MAX_BYTES,
  };
}

/** The limits of rates, streams, requests and sign-ins. */
function limitsOf(values: Values) {
  return {
    rate: {
      limit: values.RATE_LIMIT,
      windowMs: values.RATE_WINDOW_MS,
      maxWaitMs: values.RATE_MAX_WAIT_MS,
    },
    /** Of messages, and as many of each kind of live stream. */
    maxStreams: { perUser: values.MAX_STREAMS_PER_USER, perAddress: values.MAX_STREAMS_PER_ADDRESS },
    /** 0 is no limit. */
    clientLimits: {
      perAddress: values.CLIENT_LIMIT_PER_ADDRESS,
      perSession: values.CLIENT_LIMIT_PER_SESSION,
    },
    login: {
      maxFailures: values.LOGIN_MAX_FAILURES,
      maxFailuresPerAddress: values.LOGIN_MAX_FAILURES_PER_ADDRESS,
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

/** How Redis is reached; undefined if this process keeps everything in its memory. */
function redisOf(values: Values): RedisSettings | undefined {
  const { REDIS_URL: url, REDIS_TLS_CA: ca, REDIS_TLS_CERT: cert } = values;
  const { REDIS_TLS_KEY: key, REDIS_TLS_SERVERNAME: servername } = values;
  if (!url) return undefined;
  return {
    url,
    tls: redisAddress(url).tls ? { ca, cert, key, servername } : undefined,
    isCluster: values.REDIS_MODE === 'cluster',
    sentinel: sentinelOf(values),
  };
}

function sentinelOf(values: Values): SentinelSettings | undefined {
  const { REDIS_SENTINEL_MASTER: master, REDIS_SENTINEL_USER: user } = values;
  if (values.REDIS_MODE !== 'sentinel' || master === undefined) return undefined;
  return { master, user, password: values.REDIS_SENTINEL_PASSWORD };
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
