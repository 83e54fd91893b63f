import { answerOf, type Caller } from '../transport/calls.ts';
import { isSignedOut } from '../transport/relay-error.ts';
import { forgetKept, type KeptOfRelay } from './kept.ts';
import type { Session, SessionTracker, Tabs } from './session-tracker.ts';

/** The answer to a sign-out; undefined unless `AUTH_MODE=oidc`. */
type SignOutAnswer = { readonly logoutUrl: string | null } | undefined;

/** Who learns what each call has found. */
interface SessionParts {
  readonly options: KeptOfRelay;
  readonly tracker: SessionTracker;
  readonly tabs: Tabs;
}

/** The calls of a client that begin, end and show its session. */
export function sessionCalls(call: Caller, { options, tracker, tabs }: SessionParts) {
  const signedInBy = async (called: Promise<Response>): Promise<Session> => {
    const session = await answerOf<Session>(called);
    // Nothing else does it where the page follows no session.
    forgetKept(options, (of) => of === session.user.id);
    tracker.learn(session);
    tabs.tell(session.user.id, true);
    return session;
  };
  /** The question that is under way, and the number of the session in which it was asked. */
  let asking: { readonly askedIn: number; readonly answer: Promise<Session | undefined> } | undefined;
  async function ask(askedIn: number): Promise<Session | undefined> {
    const session = await answerOf<Session>(call('/auth/session')).catch(unlessSignedOut);
    const isCurrent = askedIn === tracker.current();
    tracker.learn(session, askedIn);
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

/** Returns undefined for an error that `isSignedOut`. @throws all other errors */
function unlessSignedOut(error: unknown): undefined {
  if (!isSignedOut(error)) throw error;
}
