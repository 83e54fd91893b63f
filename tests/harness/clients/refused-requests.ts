import type { ProblemCode, Retryable } from '../../../src/errors.ts';
import type { Change, Route } from './routes.ts';

export const BASE_PATH = '/chat-api';
const BODY = '{"text":"hi"}';
const LENGTH = `Content-Length: ${BODY.length}`;

/** A request that is refused wherever it comes, or at the routes `at`, before anything is sent to the service. */
export interface Refusal {
  readonly change: Change | ((route: Route) => Change);
  readonly status: number;
  readonly code: ProblemCode;
  readonly retryable?: Retryable;
  readonly at?: (route: Route) => boolean;
}
type Table = Readonly<Record<string, Refusal>>;

const rows = <K extends string, V>(of: Record<K, V>, make: (value: V) => Refusal): Table =>
  Object.fromEntries(Object.entries(of).map(([what, value]) => [what, make(value as V)]));
const notHttp = (change: Refusal['change']): Refusal => ({ change, status: 400, code: 'bad_request' });
const withHeaders = (...lines: string[]) =>
  notHttp({ headers: { 'Content-Length': undefined }, lines, body: BODY });
const withoutHost = (...lines: string[]) => notHttp({ headers: { Host: undefined }, lines });
const targets = (change: (path: string) => string) => notHttp(({ path }) => ({ path: change(path) }));

export const NOT_HTTP: Table = {
  'two lengths that differ': withHeaders(LENGTH, 'Content-Length: 3'),
  'two lengths alike': withHeaders(LENGTH, LENGTH),
  'a list of lengths': withHeaders(`${LENGTH}, ${BODY.length}`),
  'a length with a sign': withHeaders(`Content-Length: +${BODY.length}`),
  'a negative length': withHeaders('Content-Length: -1'),
  'a length in hex': withHeaders('Content-Length: 0xd'),
  'a length and chunks': withHeaders(LENGTH, 'Transfer-Encoding: chunked'),
  'chunks and a length': withHeaders('Transfer-Encoding: chunked', LENGTH),
  'a last encoding that is not chunked': withHeaders('Transfer-Encoding: chunked, gzip'),
  // Other routes may answer before the parser has looked at the body.
  'an unknown encoding': {
    ...withHeaders('Transfer-Encoding: xchunked'),
    at: ({ maxJsonBytes }) => maxJsonBytes !== undefined,
  },
  'a folded header': withHeaders(LENGTH, 'X-Folded: a\r\n b'),
  'a folded length': withHeaders('Content-Length:\r\n 13'),
  'a space before a colon': withHeaders(`Content-Length : ${BODY.length}`),
  'a header without a name': withHeaders(LENGTH, ': x'),
  'a header without a colon': withHeaders(LENGTH, 'nonsense'),
  'a NUL in a header': withHeaders(LENGTH, 'X-Nul: a\0b'),
  'a bare CR in a header': withHeaders(LENGTH, 'X-Cr: a\rb'),
  'no Host': withoutHost(),
  'two Hosts that differ': withoutHost('Host: app.example.com', 'Host: b'),
  'two Hosts that are the same': withoutHost('Host: app.example.com', 'host: app.example.com'),
  'two Hosts of which one is empty': withoutHost('Host:', 'HOST: app.example.com'),
  'a backslash': targets((path) => path.replace(/.$/, '\\$&')),
  'a backslash for each slash': targets((path) => path.replaceAll('/', '\\')),
  'a NUL': targets((path) => `${path}\0`),
  'a space': targets((path) => `${path} x`),
  'a tab': targets((path) => `${path}\t`),
  'a byte that is not ASCII': targets((path) => `${path}\xe9`),
  'a fragment': notHttp(({ query }) => ({ query: `${query}#x` })),
  'absolute-form': targets((path) => `http://app.example.com${path}`),
  'absolute-form of another host': targets((path) => `http://169.254.169.254${path}`),
  'absolute-form without a host': targets((path) => `file://${path}`),
  'no slash at the beginning': targets((path) => path.slice(1)),
  'an asterisk': targets(() => '*'),
  'an asterisk with OPTIONS': notHttp({ method: 'OPTIONS', path: '*', query: '' }),
  'authority-form with CONNECT': notHttp({ method: 'CONNECT', path: '169.254.169.254:80', query: '' }),
  'authority-form': targets(() => '169.254.169.254:80'),
  ...rows(
    { CONNECT: 'CONNECT', 'a method in lower case': 'post', 'an unknown method': 'SMUGGLE' },
    (method) => notHttp({ method }),
  ),
  ...Object.fromEntries(
    ['HTTP/2.0', 'HTTP/0.9', 'RTSP/1.0', 'RTSP/1.1', 'RTSP/2.0', 'FTP/1.1', 'ICE/1.0'].map((version) => [
      version,
      notHttp({ version }),
    ]),
  ),
  'HTTP/2 without TLS': notHttp({ method: 'PRI', path: '*', query: '', version: 'HTTP/2.0' }),
  ...rows(
    {
      'a header of 20 KiB': { lines: [`X-Large: ${'x'.repeat(20_000)}`] },
      'a path of 20 KiB': { path: `/${'x'.repeat(20_000)}` },
    },
    (change) => ({ change, status: 431, code: 'headers_too_large' }),
  ),
};

const notFound = (change: (path: string) => string): Refusal => ({
  change: ({ path }) => ({ path: change(path) }),
  status: 404,
  code: 'not_found',
});
export const isOfBot = ({ kind }: Route) => kind === 'bot';
export const NOT_FOUND: Table = {
  ...Object.fromEntries(
    ['/', '/nowhere', '/auth', '/auth/', '/generic', '/metrics', '/favicon.ico'].map((path) => [
      path,
      notFound(() => path),
    ]),
  ),
  'a slash at the end': notFound((path) => `${path}/`),
  'an escaped slash at the end': notFound((path) => `${path}%2f`),
  'a sub-path': notFound((path) => `${path}/more`),
  'two slashes before': notFound((path) => `/${path}`),
  'two slashes within': {
    ...notFound((path) => path.replace(/(.)\//, '$1//')),
    at: ({ kind }) => kind !== 'probe',
  },
  'a .. that resolves to the path': notFound((path) => `/x/..${path}`),
  'a .. at the end': notFound((path) => `${path}/..`),
  'another case': notFound((path) => path.toUpperCase()),
  'another case of one letter': notFound((path) => path.replace(/.$/, (letter) => letter.toUpperCase())),
  'an escaped letter': notFound((path) =>
    path.replace(/.$/, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
  ),
  ...rows(
    { 'a broken escape': '%zz', 'a cut escape': '%', 'an escape that is no UTF-8': '%c3%28' },
    (broken) => ({
      ...notFound((path) => path.replace('helper', `helper${broken}`)),
      at: isOfBot,
    }),
  ),
  'an empty namespace': { ...notFound((path) => path.replace('acme', '')), at: isOfBot },
};
export const OUTSIDE: Table = {
  'a path outside of BASE_PATH': notFound((path) => path.slice(BASE_PATH.length)),
  'BASE_PATH alone': notFound(() => BASE_PATH),
  'BASE_PATH with a slash': notFound(() => `${BASE_PATH}/`),
  'BASE_PATH twice': notFound((path) => BASE_PATH + path),
  'BASE_PATH in another case': notFound((path) => path.replace(BASE_PATH, '/Chat-Api')),
};

const ofBot = (names: readonly string[], place = 'helper'): Table =>
  Object.fromEntries(
    names.map((name) => [
      `the name ${name} in place of ${place}`,
      {
        change: ({ path }: Route) => ({ path: path.replace(place, name) }),
        ...({ status: 404, code: 'unknown_bot', at: isOfBot } as const),
      },
    ]),
  );
export const NO_BOTS: Table = {
  ...ofBot(['..', '%2e%2e', '..%2f..', '%252e%252e', '..%5c..'], 'acme'),
  ...ofBot(['.', '%2E%2E', 'helper%2fmessage', 'helper%25', 'helper%00', 'helper%0d%0aX-Evil:1', 'x%7f']),
  // Invisible characters.
  ...ofBot(
    [...'\x80\x9b\u00ad\u200b\u200d\u200e\u2028\u2029\u202e\u2066\ufeff'].map(
      (one) => `a${encodeURIComponent(one)}b`,
    ),
  ),
};
export const OTHER_BOTS: Table = {
  ...ofBot(['HELPER', 'Helper', 'nobody', '*']),
  ...ofBot(['other', 'acme2'], 'acme'),
};

const takesJson = ({ maxJsonBytes }: Route) => maxJsonBytes !== undefined;
const needsSession = ({ kind, method }: Route) => kind === 'bot' || (kind === 'session' && method === 'POST');
export const SHAPED: Table = {
  ...rows(
    {
      'without a cookie': '',
      'with an altered cookie': 'bot_relay_session=evil',
      'with another cookie': 'a=b',
    },
    (Cookie) => ({ change: { headers: { Cookie } }, status: 401, code: 'unauthenticated', at: needsSession }),
  ),
  ...rows<string, Record<string, string>>(
    {
      'from another site': { 'Sec-Fetch-Site': 'cross-site' },
      'from a page of the same site': { 'Sec-Fetch-Site': 'same-site', Origin: 'http://x.example.com' },
      'of a foreign origin': { Origin: 'https://other.example.net' },
    },
    (headers) => ({
      change: { headers },
      ...{ status: 403, code: 'cross_site_request' },
      at: ({ checksOrigin }) => checksOrigin,
    }),
  ),
  'to a bot without its group': {
    change: ({ path, operation }) => ({ path: path.replace('helper', `no-${operation?.group}`) }),
    ...{ status: 501, code: 'operation_not_enabled', at: isOfBot },
  },
  ...rows<string, Record<string, string | undefined>>(
    {
      'as text': { 'Content-Type': 'text/plain' },
      'as a form': { 'Content-Type': 'application/x-www-form-urlencoded' },
      'as a multipart form': { 'Content-Type': 'multipart/form-data; boundary=x' },
      'without a type': { 'Content-Type': undefined },
      'with an empty type': { 'Content-Type': '' },
      'with a type that begins like JSON': { 'Content-Type': 'application/jsonp' },
      'as a dialect of JSON': { 'Content-Type': 'application/ld+json' },
      'with JSON as a parameter': { 'Content-Type': 'text/plain; application/json' },
      'with two types': { 'Content-Type': 'text/plain, application/json' },
      'with an encoding': { 'Content-Encoding': 'gzip' },
      'with two encodings': { 'Content-Encoding': 'identity, gzip' },
    },
    (headers) => ({ change: { headers }, status: 415, code: 'unsupported_media_type', at: takesJson }),
  ),
  ...rows(
    {
      'with JSON that is not complete': '{"text":',
      'with JSON and more': '{} {}',
      'with no bytes': '',
      'with white space': ' \n',
      'with NaN': 'NaN',
      'with a single quote': "{'text':1}",
      'with invalid UTF-8 in a string': Buffer.from([0x22, 0xc3, 0x28, 0x22]),
      'with a lone surrogate in UTF-8': Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]),
      'with UTF-16': Buffer.from('{}', 'utf16le'),
      'with a byte order mark': Buffer.from('\ufeff{}'),
    },
    (body: string | Buffer) => ({ change: { body }, status: 400, code: 'invalid_json', at: takesJson }),
  ),
  'with too large a body': {
    change: ({ maxJsonBytes = 0 }) => ({ body: '"'.padEnd(maxJsonBytes, 'x').concat('"') }),
    ...{ status: 413, code: 'body_too_large', at: takesJson },
  },
};

export const foreignHost: Refusal = {
  change: { headers: { Host: 'evil.example' } },
  ...{ status: 421, code: 'unknown_host', at: ({ kind }) => kind !== 'probe' },
};

/** The problems of a message that is wrong in several ways are judged in this order. */
export const IN_ORDER: readonly Refusal[] = [
  foreignHost,
  SHAPED['from another site'] as Refusal,
  SHAPED['without a cookie'] as Refusal,
  OTHER_BOTS['the name nobody in place of helper'] as Refusal,
  SHAPED['as text'] as Refusal,
  SHAPED['with NaN'] as Refusal,
];

/** Headers of every answer. */
export const PROTECTION = {
  'content-security-policy': "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};
