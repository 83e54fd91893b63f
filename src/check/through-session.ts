import { type Secret, secret } from '../secret.ts';
import { adviceOnProblem } from './advice.ts';
import {
  type Answer,
  cookieAttributes,
  cookieFaults,
  jsonOf,
  problemOf,
  sessionCookieIn,
} from './answers.ts';
import { type Call, credentials } from './http-client.ts';
import type { About } from './report.ts';
import { reportHeaders, reportWrong, type ThroughContext } from './through-context.ts';
import type { Visitor } from './visitors.ts';

/** On how many new connections the session must be known. A load balancer spreads them over the instances. */
const CONNECTIONS = 5;

/** Signs in, checks the cookie and that every instance knows the session, runs `inSession`, and signs out. */
export async function checkSession(
  context: ThroughContext,
  visitor: Visitor,
  inSession: (cookie: string) => Promise<void>,
): Promise<void> {
  const { report } = context;
  const about = report.about('sign-in');
  const session = await signIn(context, visitor, about);
  if (!session) return;
  try {
    reportHeaders(session.answer.headers, 'sign-in', report);
    report.hide(session.value);
    about.ok(`${visitor === 'guest' ? 'a guest' : visitor.user} is signed in`);
    reportCookie(session.setCookie, context);
    if (await isKnown(context, session.cookie)) await inSession(session.cookie);
  } finally {
    await signOut(context, session.cookie, report.about('sign-out'));
  }
}

/**
 * Signs a second visitor in, runs `inSession`, and signs out. Reports only what is wrong. If nobody can be signed in,
 * `inSession` runs without a cookie.
 */
export async function inOtherSession(
  context: ThroughContext,
  visitor: Visitor,
  inSession: (cookie: string | undefined) => Promise<void>,
): Promise<void> {
  const about = (check: string) => {
    const { note, problem } = context.report.about(check, 'second user');
    // Nobody has asked for a second guest, and GUESTS_PER_ADDRESS may rightly refuse one.
    return { ok: () => {}, problem: visitor === 'guest' ? note : problem };
  };
  const session = await signIn(context, visitor, about('sign-in'));
  if (!session) return inSession(undefined);
  context.report.hide(session.value);
  try {
    await inSession(session.cookie);
  } finally {
    await signOut(context, session.cookie, about('sign-out'));
  }
}

interface SignedIn {
  readonly answer: Answer;
  readonly setCookie: string;
  /** The name and value of the session's cookie, and the value, which is to be hidden. */
  readonly cookie: string;
  readonly value: Secret;
}

/** Signs in; reports if that fails. */
async function signIn(
  { client, base }: ThroughContext,
  visitor: Visitor,
  about: Pick<About, 'problem'>,
): Promise<SignedIn | undefined> {
  const call: Call =
    visitor === 'guest'
      ? { method: 'POST', path: `${base}/auth/guest` }
      : { method: 'POST', path: `${base}/auth/login`, body: credentials(visitor.user, visitor.password) };
  const answer = await client.call(call);
  if (answer.status !== 200) {
    reportWrong(answer, about, adviceOn(answer, call));
    return undefined;
  }
  const setCookie = sessionCookieIn(answer.headers);
  if (setCookie === undefined) {
    about.problem('went well, but no session cookie came', 'Let the load balancer pass Set-Cookie on.');
    return undefined;
  }
  const cookie = setCookie.split(';', 1)[0] as string;
  return { answer, setCookie, cookie, value: secret(cookie.slice(cookie.indexOf('=') + 1)) };
}

function adviceOn(answer: Answer, { path, body }: Call): string {
  const wrongMode = `The relay has no ${path}: look at its AUTH_MODE and BASE_PATH.`;
  const tooMany = body
    ? 'Too many sign-ins have failed: wait'
    : 'Too many guests came from here (GUESTS_PER_ADDRESS): wait';
  return adviceOnProblem(problemOf(answer)?.code, {
    none: `Look at what the load balancer does with ${path}.`,
    ...{ not_found: wrongMode, method_not_allowed: wrongMode },
    too_many_attempts: `${tooMany}, or set TRUST_PROXY if all clients count as one.`,
  });
}

function reportCookie(setCookie: string, { cookie, report }: ThroughContext): void {
  const { ok, problem } = report.about('cookie');
  const attributes = cookieAttributes(cookie.flags.sameSite, cookie.flags.secure);
  const faults = cookieFaults(setCookie, cookie.name, attributes);
  const advice =
    'Look at PUBLIC_URL and COOKIE_SAME_SITE of the running relay; let nobody rewrite Set-Cookie.';
  if (faults.length > 0) problem(faults.join('; '), advice);
  else ok([cookie.name, ...attributes].join(', '));
}

async function isKnown({ client, base, report }: ThroughContext, cookie: string): Promise<boolean> {
  let known = 0;
  for (let i = 0; i < CONNECTIONS; i++) {
    const answer = await client.call({ method: 'GET', path: `${base}/auth/session`, cookie });
    if (isSignedIn(answer)) known++;
  }
  const { ok, problem } = report.about('session');
  const says = `known on ${known} of ${CONNECTIONS} new connections`;
  const advice =
    'All instances need the same REDIS_URL and SESSION_SECRETS; or the cookie is lost on the way.';
  if (known === CONNECTIONS) ok(says);
  else problem(says, advice);
  return known > 0;
}

/** Whether an answer of `/auth/session` says that somebody is signed in. */
const isSignedIn = (answer: Answer): boolean => userIn(answer) instanceof Object;
/** Whether it says that nobody is. */
const isNobody = (answer: Answer): boolean => userIn(answer) === null;
const userIn = ({ status, text }: Answer): unknown =>
  status === 200 ? (Object(jsonOf(text)) as { readonly user?: unknown }).user : undefined;

async function signOut(
  { client, base }: ThroughContext,
  cookie: string,
  about: Pick<About, 'ok' | 'problem'>,
): Promise<void> {
  const answer = await client.call({ method: 'POST', path: `${base}/auth/logout`, cookie });
  const after = await client.call({ method: 'GET', path: `${base}/auth/session`, cookie });
  const advice = 'The session of this check lives on until it runs out: look at the log of the relay.';
  if (answer.status !== 204) reportWrong(answer, about, advice);
  else if (!isNobody(after)) about.problem('the session is still known after it', advice);
  else about.ok('the session is over');
}
