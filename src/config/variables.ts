import { z } from 'zod';
import { apiKeyList, botPattern, headerSecret, listOf, MAX_RATE_LIMIT } from '../bots/schemas.ts';
import { hostNamed, isAddress, isHost } from '../http/hosts.ts';
import { isLoopback } from '../http/loopback.ts';
import { type Secret, secret } from '../secret.ts';

/** The longest time that a Node timer can wait, in ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** One environment variable: how its text becomes a value, and the text that stands when it is not set. */
interface Variable<T, Fallback extends string | undefined = string | undefined> {
  readonly schema: z.ZodType<T, string>;
  readonly fallback: Fallback;
  /** True if the value is secret: then `NAME_FILE` may name a file that holds it. */
  readonly secret: boolean;
}

const optional = <T>(schema: z.ZodType<T, string>): Variable<T, undefined> => ({
  schema,
  fallback: undefined,
  secret: false,
});
const variable = <T>(schema: z.ZodType<T, string>, fallback: string): Variable<T, string> => ({
  schema,
  fallback,
  secret: false,
});
const secretVariable = <T>(schema: z.ZodType<T, string>): Variable<T, undefined> => ({
  schema,
  fallback: undefined,
  secret: true,
});

function whole(min: number, max: number, unit = '') {
  const message = `must be a whole number${unit} from ${min} to ${max}`;
  return z
    .string()
    .regex(/^\d{1,10}$/, { message, abort: true })
    .transform(Number)
    .refine((n) => n >= min && n <= max, { message });
}

const milliseconds = (min: number, max = MAX_TIMER_MS) => whole(min, max, ' of milliseconds');

const oneOf = <T extends string>(...values: [T, ...T[]]) =>
  z.enum(values, { message: `must be ${values.join(' or ')}` });

function url(message: string, accept: (url: URL) => boolean) {
  return z
    .string()
    .refine((text) => URL.canParse(text) && isPlainHttpUrl(new URL(text)) && accept(new URL(text)), {
      message,
      abort: true,
    })
    .transform((text) => new URL(text));
}

function isPlainHttpUrl(url: URL): boolean {
  const http = url.protocol === 'http:' || url.protocol === 'https:';
  return http && url.username === '' && url.password === '' && url.search === '' && url.hash === '';
}

/** Whether what is sent there cannot be read or changed on the way. */
const isSafe = ({ protocol, hostname }: URL) => protocol === 'https:' || isLoopback(hostname);

const flag = oneOf('true', 'false').transform((text) => text === 'true');

/** `claim:value`; the last colon counts, since names of claims may hold some. */
const requiredClaim = z
  .string()
  .regex(/^[^\s].*:[^:]*[^:\s]$/, 'must be claim:value, such as groups:chat-users')
  .transform((text) => {
    const colon = text.lastIndexOf(':');
    return { name: text.slice(0, colon), value: text.slice(colon + 1) };
  });

const origin = (message: string) => url(message, ({ pathname }) => pathname === '/');

/** May hold a password, so that it counts as a secret. */
const redisUrl = z
  .string()
  .refine((text) => URL.canParse(text) && /^rediss?:\/\/[^/?#]+(\/\d{1,3})?$/.test(text), {
    message: 'must be a URL such as redis://user:password@host:6379/0, or rediss:// for TLS',
  })
  .transform(secret);

const SAMPLE_WORDS = /change.?me|example|sample|replace|your.?secret|placeholder/i;
const sessionSecret = z
  .string()
  .min(32, 'holds a secret of fewer than 32 characters')
  .refine((text) => new Set(text).size >= 8 && !SAMPLE_WORDS.test(text), {
    message: 'holds a sample or easily guessed secret; make one with: openssl rand -base64 48',
  })
  .transform(secret);

const hostName = z
  .string()
  .transform((text) => hostNamed(text) ?? '')
  .refine((name) => name !== '', 'must be host names or IP addresses separated by commas');

const FORBIDDEN_USER_HEADERS =
  /^(x-api-key|cookie|authorization|host|connection|content-.*|transfer-encoding|te|trailer|upgrade|expect|accept.*|keep-alive|proxy-.*|last-event-id|x-request-id|traceparent)$/i;
const userHeader = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be a header name')
  .refine((name) => !FORBIDDEN_USER_HEADERS.test(name), 'must not be a header that the relay itself sets');

/** Express's `trust proxy`: a hop count, or a list of addresses and CIDRs (never `true`: that trusts everyone). */
const trustProxy = z
  .string()
  .refine((text) => /^\d{1,2}$/.test(text) || text.split(',').every((part) => isAddress(part.trim())), {
    message: 'must be the number of load balancers in front, or their addresses or CIDRs separated by commas',
  })
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : text.split(',').map((part) => part.trim())));

const WORKERS = /^(auto|[1-9]|[1-5]\d|6[0-4])$/;

/**
 * Every variable that the relay reads, in the order of the README's table. `.env.example` and that table
 * are tested against this object.
 */
export const VARIABLES = {
  NODE_ENV: optional(oneOf('production', 'development', 'test')),
  PORT: variable(whole(0, 65535), '3000'),
  HOST: optional(z.string().refine(isHost, 'must be an IP address or a host name')),
  BASE_PATH: optional(
    z
      .string()
      .regex(
        /^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9._~-]+)+$/,
        'must be a path such as /chat-api, with no slash at its end',
      ),
  ),
  PUBLIC_URL: optional(origin('must be an http or https origin such as https://chat.example.com')),
  TRUST_PROXY: optional<number | string[]>(trustProxy),
  ALLOWED_ORIGINS: optional(listOf(origin('must be http or https origins').transform((url) => url.origin))),
  ALLOWED_HOSTS: optional(listOf(hostName)),
  WORKERS: variable(z.string().regex(WORKERS, 'must be auto or a whole number from 1 to 64'), '1'),
  METRICS_PORT: optional(whole(1, 65535)),
  LOG_LEVEL: variable(oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'info'),
  SHUTDOWN_DELAY_MS: optional(milliseconds(0)),
  SHUTDOWN_GRACE_MS: variable(milliseconds(0), '185000'),
  UPSTREAM_BASE_URL: optional(
    url('must be an http or https URL without user, query or fragment', () => true),
  ),
  UPSTREAM_API_KEYS: secretVariable<Secret[]>(apiKeyList),
  BOTS: optional(listOf(botPattern)),
  BOTS_FILE: optional(z.string()),
  UPSTREAM_RESPONSE_TIMEOUT_MS: variable(milliseconds(1), '60000'),
  MAX_EXECUTION_MS: variable(milliseconds(1), '180000'),
  HEARTBEAT_MS: variable(milliseconds(0), '15000'),
  MAX_BODY_BYTES: variable(whole(1, 2 ** 28), '1048576'),
  FORWARD_QUERY: optional(
    listOf(z.string().regex(/^[A-Za-z0-9_.-]+$/, 'must be names of query parameters separated by commas')),
  ),
  USER_HEADER: optional(userHeader),
  RATE_LIMIT: variable(whole(1, MAX_RATE_LIMIT), '5'),
  RATE_WINDOW_MS: variable(milliseconds(1, 3_600_000), '1000'),
  RATE_MAX_WAIT_MS: variable(milliseconds(0, 600_000), '2000'),
  MAX_STREAMS_PER_USER: variable(whole(1, 1_000_000), '8'),
  MAX_STREAMS_PER_ADDRESS: variable(whole(1, 1_000_000), '64'),
  CLIENT_LIMIT_PER_ADDRESS: variable(whole(0, 1_000_000_000), '3000'),
  CLIENT_LIMIT_PER_SESSION: variable(whole(0, 1_000_000_000), '300'),
  CLIENT_WINDOW_MS: variable(milliseconds(1, 86_400_000), '60000'),
  LOGIN_MAX_FAILURES: variable(whole(1, 1_000_000), '10'),
  LOGIN_MAX_FAILURES_PER_ADDRESS: variable(whole(1, 1_000_000), '100'),
  LOGIN_WINDOW_MS: variable(milliseconds(1, 86_400_000), '600000'),
  SESSION_SECRETS: secretVariable<Secret[]>(listOf(sessionSecret, /[,\n]/)),
  SESSION_IDLE_MINUTES: variable(whole(1, 525_600), '30'),
  SESSION_ABSOLUTE_HOURS: variable(whole(1, 8_760), '8'),
  COOKIE_SAME_SITE: variable(oneOf('strict', 'lax', 'none'), 'strict'),
  REDIS_URL: secretVariable(redisUrl),
  AUTH_MODE: variable(oneOf('password', 'oidc', 'guest'), 'password'),
  USERS_FILE: variable(z.string(), 'users.json'),
  OIDC_ISSUER: optional(
    url('must be an https URL without user, query or fragment; http on loopback only', isSafe).refine(
      ({ pathname }) => !pathname.includes('/.well-known/'),
      'must be the issuer itself, without /.well-known/ and what follows',
    ),
  ),
  OIDC_CLIENT_ID: optional(z.string().regex(/^[\x21-\x7e]{1,256}$/, 'must be the id of a client')),
  OIDC_CLIENT_SECRET: secretVariable(headerSecret),
  OIDC_SCOPES: variable(
    z
      .string()
      .refine((text) => text.split(' ').includes('openid') && /^[\x21-\x7e]+( [\x21-\x7e]+)*$/.test(text), {
        message: 'must be scopes separated by spaces, openid among them',
      }),
    'openid profile',
  ),
  OIDC_REQUIRED_CLAIM: optional(requiredClaim),
  OIDC_KEEP_ID_TOKEN: variable(flag, 'false'),
  GUESTS_PER_ADDRESS: variable(whole(0, 1_000_000_000), '100'),
} as const;

export type VariableName = keyof typeof VARIABLES;

/** What the variables hold once read: `undefined` where one is not set and has no default. */
export type Values = {
  readonly [Name in VariableName]: (typeof VARIABLES)[Name] extends Variable<infer T, infer Fallback>
    ? T | (Fallback extends string ? never : undefined)
    : never;
};

/** The variables that hold secrets. */
export function secretVariables(): readonly string[] {
  return Object.entries(VARIABLES).flatMap(([name, { secret }]) => (secret ? [name] : []));
}

/** Whether `name` is a variable of the relay, or the `NAME_FILE` of a secret one. */
export function isVariable(name: string): boolean {
  if (Object.hasOwn(VARIABLES, name)) return true;
  const base = name.replace(/_FILE$/, '');
  return Object.hasOwn(VARIABLES, base) && VARIABLES[base as VariableName].secret;
}
