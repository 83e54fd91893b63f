import { answerOf, type Call } from './calls.ts';
import { RelayError } from './relay-error.ts';
import type { Session, SessionEras } from './session-eras.ts';

/** What a sign-out answers: nothing, but with `AUTH_MODE=oidc`. */
type Goodbye = { readonly logoutUrl: string | null } | undefined;

/** The calls of a client that begin, end and show its session; `eras` takes in what each has found. */
export function sessionCalls(call: (path: string, call?: Call) => Promise<Response>, eras: SessionEras) {
  const signedInBy = async (called: Promise<Response>): Promise<Session> => {
    const session = await answerOf<Session>(called);
    eras.learn(session);
    return session;
  };
  return {
    signIn: (username: string, password: string) =>
      signedInBy(call('/auth/login', { method: 'POST', body: JSON.stringify({ username, password }) })),
    signInAsGuest: () => signedInBy(call('/auth/guest', { method: 'POST' })),
    async session() {
      const asked = eras.now();
      const session = await answerOf<Session>(call('/auth/session')).catch(unlessSignedOut);
      eras.learn(session, asked);
      return session;
    },
    async signOut() {
      const asked = eras.now();
      const goodbye = await answerOf<Goodbye>(call('/auth/logout', { method: 'POST' })).catch(
        unlessSignedOut,
      );
      eras.learn(false, asked);
      return { logoutUrl: goodbye?.logoutUrl ?? null };
    },
  };
}

/** Whether the relay says that there is no session any more. */
export function isSignedOut(error: unknown): boolean {
  return error instanceof RelayError && ['unauthenticated', 'session_ended'].includes(error.code);
}

/** Undefined for a call that says so. @throws all other errors */
function unlessSignedOut(error: unknown): undefined {
  if (!isSignedOut(error)) throw error;
}
