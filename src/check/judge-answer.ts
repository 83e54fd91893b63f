import type { IncomingHttpHeaders } from 'node:http';
import type { Answer } from './through-client.ts';

type Head = Omit<Answer, 'text'>;

/** Headers that an answer must not have: they show a secret or the software behind the relay, or belong to others. */
const LEAKS = ['x-api-key', 'x-powered-by', 'www-authenticate'];
const REQUEST_ID = /^[A-Za-z0-9._-]{8,128}$/;

/** What is wrong with the headers of an answer, in plain words; `kind` is what the answer should be. */
export function headerFaults({ headers }: Head, kind: 'json' | 'stream'): string[] {
  const faults: string[] = [];
  if (!REQUEST_ID.test(one(headers['x-request-id']))) faults.push('X-Request-Id is missing');
  if (one(headers['x-content-type-options']).toLowerCase() !== 'nosniff') {
    faults.push('X-Content-Type-Options is not nosniff');
  }
  const caching = one(headers['cache-control']).toLowerCase();
  const wanted = kind === 'stream' ? ['no-cache', 'no-transform'] : ['no-store'];
  for (const word of wanted.filter((word) => !caching.includes(word))) {
    faults.push(`Cache-Control does not say ${word}`);
  }
  if (kind === 'stream' && headers['content-encoding']) faults.push('the stream is compressed');
  faults.push(...LEAKS.filter((name) => headers[name] !== undefined).map((name) => `${name} is there`));
  return faults;
}

/** What is wrong with the answer to a request without a session (its body: RFC 9457), in plain words. */
export function unauthenticatedFaults(answer: Answer): string[] {
  const { status, headers } = answer;
  if (status !== 401) return [`it is ${describeAnswer(answer)}, not 401`];
  const faults = headerFaults(answer, 'json');
  const problem = problemOf(answer);
  if (problem?.code !== 'unauthenticated')
    faults.push('it is not the problem "unauthenticated" of the relay');
  else if (problem.requestId !== headers['x-request-id'])
    faults.push('X-Request-Id is not the one of the body');
  if (headers.location !== undefined) faults.push('it has a Location');
  if (headers['set-cookie'] !== undefined && sessionCookieIn(headers))
    faults.push('it sets a session cookie');
  return faults;
}

/** The session cookie that an answer sets, whole; `undefined` if there is none. */
export function sessionCookieIn(headers: IncomingHttpHeaders): string | undefined {
  return headers['set-cookie']?.find((cookie) => /^[^=]*bot_relay_session=/.test(cookie));
}

export interface ExpectedCookie {
  readonly name: string;
  readonly flags: { readonly sameSite: string; readonly secure: boolean };
}

/** What is wrong with the `Set-Cookie` of a session, in plain words. Its value is not shown. */
export function cookieFaults(setCookie: string, { name, flags }: ExpectedCookie): string[] {
  const [pair = '', ...attributes] = setCookie.split(';').map((part) => part.trim());
  const flag = (attribute: string) =>
    attributes.find((one) => one.toLowerCase().split('=')[0] === attribute)?.toLowerCase();
  const faults: string[] = [];
  if (pair.split('=')[0] !== name) faults.push(`its name is not ${name}`);
  if (flag('httponly') === undefined) faults.push('it is not HttpOnly');
  if (flags.secure && flag('secure') === undefined) faults.push('it is not Secure');
  if (flag('samesite') !== `samesite=${flags.sameSite}`) faults.push(`it is not SameSite=${flags.sameSite}`);
  if (flag('path') !== 'path=/') faults.push('its path is not /');
  if (flag('domain') !== undefined) faults.push('it has a Domain');
  return faults;
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
}

/** The problem that an answer is, or that a stream of the relay begins with: it is the data of its event `error`. */
export function problemOf({ status, headers, text }: Answer): AnsweredProblem | undefined {
  const type = one(headers['content-type']);
  if (/^application\/problem\+json\b/i.test(type)) return problemIn(text, status);
  const data = /^text\/event-stream\b/i.test(type) && /^(?::\n)*event: error\ndata: (.+)\n\n/.exec(text)?.[1];
  return data ? problemIn(data, status) : undefined;
}

/** The members of a problem document (RFC 9457); `answered` is the status of its answer. */
export function problemIn(json: string, answered: number): AnsweredProblem | undefined {
  try {
    const { code, status, requestId } = JSON.parse(json) as Record<string, unknown>;
    if (typeof code !== 'string') return undefined;
    return { code, status: typeof status === 'number' ? status : answered, requestId };
  } catch {
    return undefined;
  }
}

function one(value: string | string[] | undefined): string {
  return [value ?? ''].flat().join(', ');
}
