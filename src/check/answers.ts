import type { IncomingHttpHeaders } from 'node:http';

/** A whole answer from the public address. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Headers that an answer must not have: they show a secret or the software behind the relay, or belong to others. */
const LEAKS = ['x-api-key', 'x-powered-by', 'www-authenticate'];
const REQUEST_ID = /^[A-Za-z0-9._-]{8,128}$/;

/** What is wrong with the headers of an answer, in plain words; `kind` is what the answer should be. */
export function headerFaults(headers: IncomingHttpHeaders, kind: 'json' | 'stream'): string[] {
  const faults: string[] = [];
  if (!REQUEST_ID.test(one(headers['x-request-id']))) faults.push('X-Request-Id is missing');
  if (one(headers['x-content-type-options']).toLowerCase() !== 'nosniff')
    faults.push('X-Content-Type-Options is not nosniff');
  const caching = one(headers['cache-control']).toLowerCase();
  const wanted = kind === 'stream' ? ['no-cache', 'no-transform'] : ['no-store'];
  for (const word of wanted.filter((word) => !caching.includes(word)))
    faults.push(`Cache-Control does not say ${word}`);
  if (kind === 'stream' && headers['content-encoding']) faults.push('the stream is compressed');
  return [
    ...faults,
    ...LEAKS.filter((name) => headers[name] !== undefined).map((name) => `${name} is there`),
  ];
}

/** What is wrong with the answer to a request without a session (its body: RFC 9457), in plain words. */
export function unauthenticatedFaults(answer: Answer): string[] {
  const { status, headers } = answer;
  if (status !== 401) return [`it is ${describeAnswer(answer)}, not 401`];
  const faults = headerFaults(headers, 'json');
  const problem = problemOf(answer);
  if (problem?.code !== 'unauthenticated')
    faults.push('it is not the problem "unauthenticated" of the relay');
  else if (problem.requestId !== headers['x-request-id'])
    faults.push('X-Request-Id is not the one of the body');
  return faults;
}

/** The session cookie that an answer sets, whole; `undefined` if there is none. */
export function sessionCookieIn(headers: IncomingHttpHeaders): string | undefined {
  return headers['set-cookie']?.find((cookie) => /^[^=]*bot_relay_session=/.test(cookie));
}

/** The attributes that a cookie must have besides its path. */
export function cookieAttributes(sameSite: string, isSecure: boolean): string[] {
  return ['HttpOnly', `SameSite=${sameSite}`, ...(isSecure ? ['Secure'] : [])];
}

/** What is wrong with a `Set-Cookie`, in plain words. Its value is not shown. */
export function cookieFaults(setCookie: string, name: string, attributes: readonly string[]): string[] {
  const found = setCookie.split(';').map((part) => part.trim().toLowerCase());
  const missing = [...attributes, 'Path=/'].filter((one) => !found.includes(one.toLowerCase()));
  const faults = missing.map((one) => `it is not ${one}`);
  if (!setCookie.startsWith(`${name}=`)) faults.unshift(`its name is not ${name}`);
  return found.some((one) => one.startsWith('domain')) ? [...faults, 'it has a Domain'] : faults;
}

/** Describes an answer: its status, and the relay's code or the media type of its body. */
export function describeAnswer(answer: Answer): string {
  const { status, headers } = answer;
  const problem = problemOf(answer);
  if (problem) return `${problem.status} ${problem.code}`;
  const type = /^[a-z]+\/[a-z0-9.+-]+/i.exec(one(headers['content-type']))?.[0] ?? 'no type';
  const location = headers.location === undefined ? '' : ', a redirect';
  const server = headers.server === undefined ? '' : `, from ${headers.server}`;
  return `${status} (${type}${location}${server})`;
}

/** What the relay says of a request that has failed. */
export interface AnsweredProblem {
  readonly code: string;
  readonly status: number;
  readonly requestId: unknown;
  /** The answer of the bot service, if it has refused. */
  readonly upstream: unknown;
}

/** The problem that an answer is. */
export function problemOf({ status, headers, text }: Answer): AnsweredProblem | undefined {
  const isProblem = /^application\/problem\+json\b/i.test(one(headers['content-type']));
  return isProblem ? problemIn(text, status) : undefined;
}

/** The members of a problem document (RFC 9457); `answered` is the status of its answer. */
export function problemIn(json: string, answered: number): AnsweredProblem | undefined {
  const { code, status, requestId, upstream } = Object(jsonOf(json)) as Partial<AnsweredProblem>;
  if (typeof code !== 'string') return undefined;
  return { code, status: typeof status === 'number' ? status : answered, requestId, upstream };
}

/** The value of a text that is JSON; `undefined` if it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function one(value: string | string[] | undefined): string {
  return [value ?? ''].flat().join(', ');
}
