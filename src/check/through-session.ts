import { cookieFaults, problemOf, sessionCookieIn } from './judge-answer.ts';
import { type Answer, credentials, type ThroughCall } from './through-client.ts';
import { reportHeaders, reportWrongAnswer, type ThroughContext, type Visitor } from './through-context.ts';

type SignInContext = ThroughContext & { readonly visitor: Visitor };

/** On how many new connections the session must be known. A load balancer spreads them over the instances. */
const CONNECTIONS = 5;

/** Signs in, checks the cookie and that every instance knows the session, runs `inSession`, and signs out. */
export async function checkSession(
  context: SignInContext,
  inSession: (cookie: string) => Promise<void>,
): Promise<void> {
  const signedIn = await signIn(context);
  if (!signedIn) return;
  const { setCookie, pair } = signedIn;
  try {
    reportCookie(setCookie, context);
    if (await isKnown(context, pair)) await inSession(pair);
  } finally {
    await signOut(context, pair);
  }
}

/**
 * Signs a second visitor in, runs `inSession`, and signs out. Reports only what is wrong. If nobody can be signed in,
 * `inSession` runs without a cookie.
 */
export async function inOtherSession(
  context: SignInContext,
  inSession: (cookie: string | undefined) => Promise<void>,
): Promise<void> {
  // Nobody has asked for a second guest, and GUESTS_PER_ADDRESS may rightly refuse one.
  const state = context.visitor === 'guest' ? 'note' : 'problem';
  const report: ThroughContext['report'] = (finding) => {
    if (finding.state === 'problem') context.report({ ...finding, state, about: 'second user' });
  };
  const signedIn = await signIn({ ...context, report });
  if (!signedIn) return inSession(undefined);
  try {
    await inSession(signedIn.pair);
  } finally {
    await signOut({ ...context, report }, signedIn.pair);
  }
}

/** Signs in. Returns the session's `Set-Cookie`, and its name and value, which is masked from now on. */
async function signIn(context: SignInContext): Promise<{ setCookie: string; pair: string } | undefined> {
  const { client, base, visitor, report } = context;
  const call = signInCall(base, visitor);
  const answer = await client.call(call);
  const check = 'sign-in';
  if (answer.status !== 200) {
    reportWrongAnswer(answer, { ...context, check, advice: adviceOn(answer, call) });
    return undefined;
  }
  reportHeaders(answer, { ...context, kind: 'json' });
  const setCookie = sessionCookieIn(answer.headers);
  if (setCookie === undefined) {
    const says = 'went well, but no session cookie came';
    report({ state: 'problem', check, says, advice: 'Let the load balancer pass Set-Cookie on.' });
    return undefined;
  }
  const who = visitor === 'guest' ? 'a guest' : visitor.user;
  report({ state: 'ok', check, says: `${who} is signed in` });
  const pair = setCookie.split(';', 1)[0] as string;
  context.hide(pair.slice(pair.indexOf('=') + 1));
  return { setCookie, pair };
}

function signInCall(base: string, visitor: Visitor): ThroughCall {
  if (visitor === 'guest') return { method: 'POST', path: `${base}/auth/guest` };
  const json = credentials(visitor.user, visitor.password);
  return { method: 'POST', path: `${base}/auth/login`, json };
}

function adviceOn(answer: Answer, { path, json }: ThroughCall): string {
  switch (problemOf(answer)?.code) {
    case 'invalid_credentials':
      return 'Look at --user and at the password; a wrong one counts as a failed sign-in.';
    case 'too_many_attempts':
      return json
        ? 'Too many sign-ins have failed: wait, or set TRUST_PROXY if all clients count as one.'
        : 'Too many guests came from here (GUESTS_PER_ADDRESS): wait, or set TRUST_PROXY if all clients count as one.';
    case 'busy':
      return 'Too many people sign in at this moment: try again, and start more instances if it stays.';
    case 'cross_site_request':
      return 'Set PUBLIC_URL, and let the load balancer pass Origin and Sec-Fetch-Site on.';
    case 'not_found':
    case 'method_not_allowed':
      return `The relay has no ${path}: look at its AUTH_MODE and BASE_PATH.`;
    default:
      return `Look at the log of the relay, and at what the load balancer does with ${path}.`;
  }
}

function reportCookie(setCookie: string, { cookie, report }: ThroughContext): void {
  const faults = cookieFaults(setCookie, cookie);
  const flags = `HttpOnly, SameSite=${cookie.flags.sameSite}${cookie.flags.secure ? ', Secure' : ''}`;
  if (faults.length === 0) report({ state: 'ok', check: 'cookie', says: `${cookie.name}, ${flags}` });
  else {
    const advice =
      'Look at PUBLIC_URL and COOKIE_SAME_SITE of the running relay; let nobody rewrite Set-Cookie.';
    report({ state: 'problem', check: 'cookie', says: faults.join('; '), advice });
  }
}

async function isKnown({ client, base, report }: ThroughContext, cookie: string): Promise<boolean> {
  let known = 0;
  for (let i = 0; i < CONNECTIONS; i++) {
    const answer = await client.call({ method: 'GET', path: `${base}/auth/session`, cookie });
    if (answer.status === 200) known++;
  }
  const says = `known on ${known} of ${CONNECTIONS} new connections`;
  const check = 'session';
  if (known === CONNECTIONS) report({ state: 'ok', check, says });
  else {
    const advice =
      'All instances need the same REDIS_URL and SESSION_SECRETS; or the cookie is lost on the context.';
    report({ state: 'problem', check, says, advice });
  }
  return known > 0;
}

async function signOut(context: ThroughContext, cookie: string): Promise<void> {
  const { client, base, report } = context;
  const answer = await client.call({ method: 'POST', path: `${base}/auth/logout`, cookie });
  const after = await client.call({ method: 'GET', path: `${base}/auth/session`, cookie });
  const check = 'sign-out';
  const advice = 'The session of this check lives on until it runs out: look at the log of the relay.';
  if (answer.status !== 204) reportWrongAnswer(answer, { ...context, check, advice });
  else if (after.status !== 401) reportWrongAnswer(after, { ...context, check: 'after sign-out', advice });
  else report({ state: 'ok', check, says: 'the session is over' });
}
