import { isIP } from 'node:net';
import { z } from 'zod';
import { OPERATION_GROUPS } from '../bots/bot.ts';
import { apiKeyList, botPattern, headerSecret, listOf, MAX_RATE_LIMIT } from '../bots/schemas.ts';
import { isForbidden } from '../http/forbidden-addresses.ts';
import { isHost, isLoopback } from '../http/hosts.ts';
import type { Secret } from '../secret.ts';
import { serviceModel } from './service-model.ts';
import {
  certificates,
  forwardedParameter,
  headerName,
  hostName,
  longSecret,
  privateKey,
  redisUrl,
  requiredClaim,
  trustProxy,
  userHeader,
} from './value-schemas.ts';

/** The longest time that a Node timer can wait, in ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** One environment variable: how its text becomes a value, and the text that is used when it is not set. */
interface Variable<T, Fallback extends string | undefined = string | undefined> {
  readonly schema: z.ZodType<T, string>;
  readonly fallback: Fallback;
  /** True if the value is secret, or comes in a file like secrets: then `NAME_FILE` may name that file. */
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

/** Whether what is sent there is encrypted, or stays on this machine. */
const isSafe = ({ protocol, hostname }: URL) => protocol === 'https:' || isLoopback(hostname);

const flag = oneOf('true', 'false').transform((text) => text === 'true');
const onOff = oneOf('on', 'off').transform((text) => text === 'on');

const host = z.string().refine(isHost, 'must be an IP address or a host name');

const origin = (message: string) => url(message, ({ pathname }) => pathname === '/');

/**
 * Every variable that the relay reads, in the order of the tables in docs/configuration.md. `.env.example` and
 * these tables are tested against this object.
 */
export const VARIABLES = {
  NODE_ENV: optional(oneOf('production', 'development', 'test')),
  PORT: variable(whole(0, 65535), '3000'),
  HOST: optional(host),
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
  CORS_HEADERS: optional(listOf(headerName)),
  ALLOWED_HOSTS: optional(listOf(hostName)),
  KEEP_ALIVE_MS: variable(milliseconds(1), '75000'),
  MAX_CONNECTIONS: optional(whole(1, 1_000_000)),
  CHAT_PAGE: variable(onOff, 'off'),
  CHAT_FILE: optional(z.string()),
  METRICS_PORT: optional(whole(1, 65535)),
  LOG_LEVEL: variable(oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'info'),
  LOG_ADDRESSES: variable(oneOf('on', 'hashed', 'off'), 'on'),
  SHUTDOWN_DELAY_MS: optional(milliseconds(0)),
  SHUTDOWN_GRACE_MS: variable(milliseconds(0), '185000'),
  UPSTREAM_BASE_URL: optional(
    url('must be an http or https URL without user, query or fragment', () => true),
  ),
  UPSTREAM_API_KEYS: secretVariable<Secret[]>(apiKeyList),
  BOTS: optional(listOf(botPattern)),
  BOTS_FILE: optional(z.string()),
  OPERATIONS: variable(listOf(oneOf(...OPERATION_GROUPS)), 'message,chat'),
  UPSTREAM_RESPONSE_TIMEOUT_MS: variable(milliseconds(1), '60000'),
  MAX_EXECUTION_MS: variable(milliseconds(1), '180000'),
  HEARTBEAT_MS: variable(milliseconds(0), '15000'),
  RESUME_UPSTREAM: variable(onOff, 'on'),
  END_EVENTS: variable(onOff, 'on'),
  SUSPEND_ON_LEAVE: variable(onOff, 'off'),
  JOIN: variable(onOff, 'on'),
  JOIN_KEEP_MS: variable(milliseconds(0, 3_600_000), '60000'),
  JOIN_REMEMBER_MS: variable(milliseconds(0), '3600000'),
  JOIN_GRACE_MS: variable(milliseconds(0, 3_600_000), '10000'),
  JOIN_MAX_BYTES: variable(whole(65_536, 2 ** 26), '1048576'),
  MAX_BODY_BYTES: variable(whole(1, 2 ** 28), '262144'),
  MAX_UPLOAD_BYTES: variable(whole(1, 2 ** 30), '20971520'),
  FORWARD_QUERY: optional(listOf(forwardedParameter)),
  USER_HEADER: optional(userHeader),
  CHANNELS: variable(oneOf('scoped', 'shared'), 'scoped'),
  CHANNEL_SECRET: secretVariable(longSecret),
  CHANNEL_REALM: optional(z.string()),
  RATE_LIMIT: variable(whole(1, MAX_RATE_LIMIT), '5'),
  RATE_WINDOW_MS: variable(milliseconds(1, 3_600_000), '1000'),
  RATE_MAX_WAIT_MS: variable(milliseconds(0, 600_000), '2000'),
  MAX_STREAMS_PER_USER: variable(whole(1, 1_000_000), '8'),
  MAX_STREAMS_PER_ADDRESS: variable(whole(1, 1_000_000), '64'),
  CLIENT_LIMIT_PER_ADDRESS: variable(whole(0, 1_000_000_000), '3000'),
  CLIENT_LIMIT_PER_SESSION: variable(whole(0, 1_000_000_000), '300'),
  LOGIN_MAX_FAILURES: variable(whole(1, 1_000_000), '10'),
  LOGIN_MAX_FAILURES_PER_ADDRESS: variable(whole(1, 1_000_000), '100'),
  SESSION_SECRETS: secretVariable<Secret[]>(listOf(longSecret, /[,\n]/)),
  SESSION_IDLE_MINUTES: variable(whole(1, 525_600), '30'),
  SESSION_ABSOLUTE_HOURS: variable(whole(1, 8_760), '8'),
  COOKIE_SAME_SITE: variable(oneOf('strict', 'lax', 'none'), 'strict'),
  REDIS_URL: secretVariable(redisUrl),
  REDIS_MODE: variable(oneOf('single', 'cluster', 'sentinel'), 'single'),
  REDIS_SENTINEL_MASTER: optional(z.string().regex(/^[\w.-]{1,256}$/, 'must be the name of a master')),
  REDIS_SENTINEL_USER: optional(z.string().regex(/^[\x21-\x7e]{1,256}$/, 'must be the name of a user')),
  REDIS_SENTINEL_PASSWORD: secretVariable(headerSecret),
  // Certificates are no secrets, but come in files like them.
  REDIS_TLS_CA: secretVariable(certificates),
  REDIS_TLS_CERT: secretVariable(certificates),
  REDIS_TLS_KEY: secretVariable(privateKey),
  REDIS_TLS_SERVERNAME: optional(
    z.string().refine((text) => isHost(text) && isIP(text) === 0, 'must be a host name'),
  ),
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
  SERVICE_DATA: optional(z.string()),
  SERVICE_SECRET: secretVariable(longSecret),
  SERVICE_HOST: variable(host, '127.0.0.1'),
  SERVICE_PORT: variable(whole(0, 65535), '4000'),
  SERVICE_CONSOLE_HOST: variable(host, '127.0.0.1'),
  SERVICE_CONSOLE_PORT: optional(whole(0, 65535)),
  SERVICE_CONSOLE_URL: optional(origin('must be an http or https origin such as https://bots.example.com')),
  SERVICE_KEEP_DAYS: variable(whole(1, 3_650), '30'),
  SERVICE_MODEL: optional(serviceModel),
  SERVICE_ENDPOINT: optional(
    url('must be an http or https URL without user, query or fragment', ({ href }) => !/[?#]/.test(href))
      .refine(({ hostname }) => !isForbidden(hostname), {
        message: 'must not be a link-local address or that of a metadata service',
      })
      .transform(({ href }) => href),
  ),
  OPENAI_API_KEY: secretVariable(headerSecret),
  AZURE_API_KEY: secretVariable(headerSecret),
  ANTHROPIC_API_KEY: secretVariable(headerSecret),
  MISTRAL_API_KEY: secretVariable(headerSecret),
  GOOGLE_GENERATIVE_AI_API_KEY: secretVariable(headerSecret),
  OPENAI_COMPATIBLE_API_KEY: secretVariable(headerSecret),
} as const;

export type VariableName = keyof typeof VARIABLES;

/** The values of the variables: `undefined` if one is not set and has no default. */
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
