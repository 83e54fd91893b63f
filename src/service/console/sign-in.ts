import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Express, RequestHandler } from 'express';
import { verifyPassword } from '../../authenticate/password/password-hash.ts';
import { memorySessionStore } from '../../authenticate/sessions/memory-session-store.ts';
import { sessionCookie } from '../../authenticate/sessions/session-cookie.ts';
import { openSessions, type Sessions } from '../../authenticate/sessions/sessions.ts';
import { Problem } from '../../errors.ts';
import { secret } from '../../secret.ts';
import { type Fault, type Form, formOf, secretField } from './fields.ts';
import { type Html, html } from './html.ts';
import { goTo, showPage } from './layout.ts';
import { fieldsOf } from './read-form.ts';

const ADMINISTRATOR = { id: 'administrator', name: 'Administrator' };
const LIMITS = { idleMs: 2 * 3_600_000, absoluteMs: 12 * 3_600_000 };
const MAX_WRONG_PASSWORDS = 5;
const MINUTE_MS = 60_000;

/** Sessions of administrators, in the memory of this process: a new start ends them. */
export function consoleSessions(isHttps: boolean) {
  const store = memorySessionStore();
  const cookie = sessionCookie({
    name: 'bot_relay_console',
    secrets: [secret(randomBytes(32).toString('base64url'))],
    realm: 'console',
    sameSite: 'strict',
    https: isHttps,
  });
  return {
    sessions: openSessions({ store, cookie, limits: LIMITS }),
    endAll: () => store.removeUser(ADMINISTRATOR.id),
    close: () => store.close(),
  };
}

/** Ends all sessions once the password is another one: who knows the old one may have them. */
export function endedByNewPassword(hash: () => string | undefined, endAll: () => unknown): RequestHandler {
  let known = hash();
  return async function endedByNewPassword(_req, _res, next) {
    const now = hash();
    if (now !== known) await endAll();
    known = now;
    next();
  };
}

/** A token that is good for one sign-in. */
export interface OneTimeToken {
  readonly text: string;
  isGood(given: string): boolean;
  /** Whether it is good; from then on it is not. */
  spend(given: string): boolean;
}

/** Makes a token of 256 random bits. */
export function oneTimeToken(): OneTimeToken {
  const text = randomBytes(32).toString('base64url');
  const hashed = (one: string) => createHash('sha256').update(one).digest();
  let isSpent = false;
  const isGood = (given: string) => !isSpent && timingSafeEqual(hashed(given), hashed(text));
  return {
    text,
    isGood,
    spend(given) {
      const wasGood = isGood(given);
      isSpent ||= wasGood;
      return wasGood;
    },
  };
}

/** Makes the check of the administrator's password. @throws Problem `too_many_attempts` after five wrong ones a minute */
export function passwordCheck(hash: () => string | undefined): (password: string) => Promise<boolean> {
  /** When each attempt began that has failed, or is being checked. */
  let attempts: number[] = [];
  return async (password) => {
    const stored = hash();
    if (stored === undefined) return false;
    const now = performance.now();
    attempts = attempts.filter((at) => at > now - MINUTE_MS);
    if (attempts.length >= MAX_WRONG_PASSWORDS)
      throw new Problem('too_many_attempts', 'Five passwords were wrong. Wait a minute and try again.', {
        retryAfter: 60,
      });
    attempts.push(now);
    const isRight = await verifyPassword(password, stored);
    if (isRight) attempts = attempts.filter((at) => at !== now);
    return isRight;
  };
}

interface SignInOptions {
  readonly sessions: Sessions;
  /** None where the console is reached from other machines. */
  readonly token: OneTimeToken | undefined;
  readonly passwordHash: () => string | undefined;
}

/** Adds the pages that everybody sees: those to sign in. */
export function signInPages(app: Express, { sessions, token, passwordHash }: SignInOptions): void {
  const isPassword = passwordCheck(passwordHash);
  const signInBody = (given: string, form: Form): Html => {
    if (token?.isGood(given)) return linkForm(given);
    const old = given !== '' && html`<p>${OLD_LINK}</p>`;
    return html`${old}${passwordHash() === undefined ? html`<p>${NEW_LINK}</p>` : passwordForm(form)}`;
  };
  const show = (res: Parameters<typeof showPage>[0], given: string, faults: readonly Fault[] = []) => {
    const form = { ...formOf('sign-in'), faults };
    showPage(res, { title: 'Sign in', body: signInBody(given, form), forms: [form], isSignedOut: true });
  };
  app.get('/sign-in', (req, res) => {
    const given = new URLSearchParams(req.url.split('?')[1]).get('token') ?? '';
    show(res, given);
  });
  app.post('/sign-in', async (req, res) => {
    const form = await fieldsOf(req);
    const given = form.get('token');
    if (given !== null ? token?.spend(given) : await isPassword(form.get('password') ?? '')) {
      await sessions.begin(req, res, { user: ADMINISTRATOR });
      return goTo(res, '/');
    }
    res.status(403);
    const wrong = { field: 'password', message: 'The password is wrong.' };
    show(res, given ?? '', given === null && passwordHash() !== undefined ? [wrong] : []);
  });
  app.post('/sign-out', async (req, res) => {
    const session = await sessions.find(req);
    if (session) await sessions.end(session, res);
    goTo(res, '/sign-in');
  });
}

const OLD_LINK = 'This link was used already, or is of an earlier start.';
const COMMAND = html`<code>bot-relay service password</code>`;
const NEW_LINK = html`Open the link that the service has printed at its start; it is good for one sign-in.
After that, start the service again for a new one, or set a password with ${COMMAND}.`;

// The link itself changes nothing: programs that look at links in advance would use it up.
const linkForm = (given: string): Html => html`<p>The link is good for one sign-in.</p>
<form method="post" action="/sign-in"><input type="hidden" name="token" value="${given}"><button>Sign in</button></form>`;

const passwordForm = (form: Form): Html => html`<form method="post" action="/sign-in">
${secretField(form, { name: 'password', label: "The administrator's password", autocomplete: 'current-password' })}
<button>Sign in</button>
</form>`;

/** Sends everybody who has not signed in to the page to sign in. */
export function signedInOnly(sessions: Sessions): RequestHandler {
  return async function signedInOnly(req, res, next) {
    const session = await sessions.find(req);
    if (session) {
      await sessions.use(session);
      return next();
    }
    if (req.method !== 'GET' && req.method !== 'HEAD')
      throw new Problem(
        'unauthenticated',
        'You are not signed in any more. Sign in, and send the form again.',
      );
    goTo(res, '/sign-in');
  };
}
