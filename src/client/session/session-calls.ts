import { answerOf, baseOf, type Caller, isOtherOrigin } from '../transport/calls.ts';
import { asRelayError, isSignedOut, isTemporary, RelayError } from '../transport/relay-error.ts';
import { inBackground } from '../transport/waits.ts';
import { forgetKept, type KeptOfRelay } from './kept.ts';
import type { Session, SessionTracker, Tabs } from './session-tracker.ts';

/** The answer to a sign-out; undefined unless `AUTH_MODE=oidc`. */
type SignOutAnswer = { readonly logoutUrl: string | null } | undefined;

/** What learns of each sign-in, sign-out and session. */
interface SessionCallsDependencies {
  readonly options: KeptOfRelay;
  readonly tracker: SessionTracker;
  readonly tabs: Tabs;
}

/** The calls of a client that begin, end and show its session. */
export function sessionCalls(call: Caller, { options, tracker, tabs }: SessionCallsDependencies) {
  const signedInBy = async (called: Promise<Response>): Promise<Session> => {
    const session = await answerOf<Session>(called);
    // A browser drops a cookie without an error. Node.js keeps none unless it is told to.
    if (typeof location === 'object' && !(await sessionNow(call))) throw cookieBlocked(baseOf(options));
    // A page that follows no session would not forget what other users have left.
    forgetKept(options, (of) => of === session.user.id);
    tracker.learn(session);
    tabs.tell(session.user.id, true);
    return session;
  };
  /** The question that is under way, and the number of the session in which it was asked. */
  let asking: { readonly askedIn: number; readonly answer: Promise<Session | null> } | undefined;
  async function ask(askedIn: number): Promise<Session | null> {
    const session = await sessionNow(call);
    const isCurrent = askedIn === tracker.current();
    tracker.learn(session ?? undefined, askedIn);
    if (isCurrent) tabs.tell(session?.user.id);
    return session;
  }
  return {
    signIn: (username: string, password: string) =>
      signedInBy(call('/auth/login', { method: 'POST', body: JSON.stringify({ username, password }) })),
    signInAsGuest: () => signedInBy(call('/auth/guest', { method: 'POST' })),
    session() {
      const askedIn = tracker.current();
      if (asking?.askedIn === askedIn) return asking.answer;
      const answer = ask(askedIn).finally(() => {
        if (asking?.answer === answer) asking = undefined;
      });
      asking = { askedIn, answer };
      return answer;
    },
    async signOut() {
      const askedIn = tracker.current();
      const answer = await answerOf<SignOutAnswer>(call('/auth/logout', { method: 'POST' })).catch(
        unlessSignedOut,
      );
      tracker.learn(null, askedIn);
      forgetKept(options);
      tabs.tell(null);
      return { logoutUrl: answer?.logoutUrl ?? null };
    },
  };
}

/** Who is signed in now; null if nobody is. */
async function sessionNow(call: Caller): Promise<Session | null> {
  const answer = await answerOf<Session | { readonly user: null }>(call('/auth/session'));
  return answer.user && answer;
}

/** The error of a sign-in at `base` whose cookie did not come back. */
function cookieBlocked(base: string): RelayError {
  const message = 'Your browser blocks the cookie of this page. Allow cookies here, and sign in again.';
  const hint = isOtherOrigin(base)
    ? 'Browsers block the cookie of a relay on another site: serve the page and the relay on one site.'
    : undefined;
  return new RelayError(message, { code: 'cookie_blocked', status: 401, hint });
}

/** Undefined if the error says that there is no session. @throws all other errors */
function unlessSignedOut(error: unknown): undefined {
  if (!isSignedOut(error)) throw error;
}

/** The pauses before the relay is asked again, in ms. They double. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
/** How many times it is asked again. */
const MAX_TRIES = 10;

type Timer = ReturnType<typeof setTimeout> | undefined;

/** Asks who is signed in, and again with pauses while the relay does not answer. */
export function sessionQuestions(
  client: { session(): Promise<unknown> },
  onError: (error: RelayError) => void,
) {
  let isOn = false;
  let next: Timer;
  let atEnd: Timer;
  let session: Session | null | undefined;
  async function ask(tries: number): Promise<void> {
    try {
      await client.session();
    } catch (thrown) {
      const error = asRelayError(thrown);
      onError(error);
      if (!isOn) return;
      if (!isTemporary(error) || tries >= MAX_TRIES) return awaitEnd(session);
      const pauseMs = Math.max(FIRST_PAUSE_MS * 2 ** tries, (error.retryAfter ?? 0) * 1000);
      clearTimeout(next);
      next = inBackground(() => void ask(tries + 1), Math.min(pauseMs, LONGEST_PAUSE_MS));
    }
  }
  /** Asks again when this session should have ended, which a tab that stays visible would not notice. */
  function awaitEnd(its: Session | null | undefined): void {
    session = its;
    clearTimeout(atEnd);
    const end = Date.parse(`${its?.idleExpiresAt}`);
    if (!isOn || Number.isNaN(end)) return;
    // One second later, since clocks differ a little. If they differ much, there is a pause all the same.
    const restMs = Math.max(end + 1_000 - Date.now(), LONGEST_PAUSE_MS);
    // A hidden tab asks when it is visible again.
    const act = () => void (globalThis.document?.hidden || ask(0));
    // A longer timer than 2 ** 31 - 1 ms would fire at once.
    atEnd = inBackground(act, Math.min(restMs, 2e9));
  }
  return {
    begin() {
      isOn = true;
      clearTimeout(next);
      next = setTimeout(ask, 0, 0);
    },
    awaitEnd,
    end() {
      isOn = false;
      clearTimeout(next);
      clearTimeout(atEnd);
    },
  };
}
