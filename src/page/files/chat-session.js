import { signInForms } from './chat-sign-in.js';
import { forgetUser } from './chat-store.js';
import { announce, byId, keepAtEnd, setText } from './chat-tools.js';

/** Remembers in local storage that somebody has signed in, so that a first visit does not ask for a session. */
const HINT = 'bot-relay-signed-in';
const SIGNED_OUT = 'You are signed out. What you write stays here until you have signed in.';
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const SHORTEST_CHECK_MS = 10_000;

/**
 * Keeps the page's session in step with the relay and with the other tabs. `client` is the relay's client, `folder` the
 * page's path. `onUser` is called with the id of each user who signs in, and whether another user was signed in before;
 * `onLeave` is called before the page is left to sign in.
 */
export function keepSession({ client, folder, onUser, onLeave }) {
  const tabs = new BroadcastChannel(`bot-relay ${folder}`);
  const forms = signInForms({
    client,
    folder,
    onSession(session) {
      shown.show(session, { focus: true });
      tabs.postMessage('in');
    },
    onLeave() {
      localStorage.setItem(HINT, 'yes');
      onLeave(shown.lastUser());
    },
  });
  const shown = shownSession({ forms, onUser, onDue: () => refresh() });
  const refresh = () => askForSession(client, shown, forms);
  /** The user has signed out, here or in another tab. */
  function signedOut(options) {
    forgetUser();
    shown.show(undefined, options);
  }

  onSignOut(client, () => {
    signedOut({ focus: true });
    tabs.postMessage('out');
  });
  tabs.addEventListener('message', ({ data }) => (data === 'out' ? signedOut() : refresh()));
  // A page from the back/forward cache has missed the messages of other tabs.
  addEventListener('pageshow', ({ persisted }) => persisted && refresh());

  return {
    isSignedIn: shown.isSignedIn,
    /** Call it when the relay says that the session is over. Another one may have begun in another tab. */
    ended: () => shown.isSignedIn() && refresh(),
    askToSignIn: () => forms.firstField().focus(),
    /** Shows the session at the start. `user` is the id of the user whose conversation was restored. */
    start(user) {
      shown.restore(user);
      if (localStorage.getItem(HINT)) return refresh();
      shown.show(undefined);
    },
  };
}

/** Signs the user out at a click, and calls `done`. */
function onSignOut(client, done) {
  byId('sign-out').addEventListener('click', async () => {
    try {
      const { logoutUrl } = await client.signOut();
      done();
      if (logoutUrl) location.assign(logoutUrl);
    } catch (error) {
      setText(byId('composer-note'), `You are still signed in. ${error.message}`);
      announce(byId('composer-note').textContent);
    }
  });
}

/** The session that the page shows. `onDue` is called when the relay should be asked whether it goes on. */
function shownSession({ forms, onUser, onDue }) {
  const { mode } = document.body.dataset;
  let session;
  let lastUser;
  /** The user for whom the page was opened. */
  let openedFor;
  let nextCheck;
  let changes = 0;
  function checkIn(ms) {
    clearTimeout(nextCheck);
    nextCheck = setTimeout(onDue, Math.min(Math.max(SHORTEST_CHECK_MS, ms), LONGEST_TIMER_MS));
  }
  function enter({ user, idleExpiresAt, absoluteExpiresAt }) {
    // A guest is a new user in each session, but the same person.
    const isOther = lastUser !== undefined && lastUser !== user.id && mode !== 'guest';
    lastUser = user.id;
    if (openedFor !== user.id) onUser(user.id, isOther);
    openedFor = user.id;
    checkIn(Math.min(Date.parse(idleExpiresAt), Date.parse(absoluteExpiresAt)) - Date.now() + 1_000);
  }
  return {
    isSignedIn: () => session !== undefined,
    lastUser: () => lastUser,
    /** The number of changes so far: the answer to an older call must not replace a newer change. */
    changes: () => changes,
    checkIn,
    restore(user) {
      lastUser = user;
    },
    /** Shows the session `next`. With `focus` the user has caused this, and the next field gets the focus. */
    show(next, { focus = false } = {}) {
      const before = session;
      session = next;
      changes += 1;
      clearTimeout(nextCheck);
      document.body.dataset.session = next ? 'in' : 'out';
      if (next) localStorage.setItem(HINT, 'yes');
      else localStorage.removeItem(HINT);
      if (next) enter(next);
      draw({ session, before, isKnown: lastUser !== undefined, focus }, forms);
    },
  };
}

/** Draws the session; `isKnown` if a user has been signed in. */
function draw({ session, before, isKnown, focus }, forms) {
  const focused = [byId('sign-in'), byId('sign-out')].find((one) => one.contains(document.activeElement));
  keepAtEnd(() => {
    for (const id of ['who', 'sign-out']) byId(id).hidden = !session;
    byId('sign-in').hidden = Boolean(session);
    byId('composer').hidden = !session && !isKnown;
    setText(byId('composer-note'), session || !isKnown ? '' : SIGNED_OUT);
    if (session) setText(byId('user'), session.user.name);
    else if (before) {
      setText(byId('sign-in-title'), 'You are signed out');
      setText(byId('sign-in-why'), 'Sign in to go on. The conversation stays here.');
    }
    forms.clearError();
  });
  // The focus moves if its element was hidden. It does not scroll the page unless the user has caused this.
  if (focus || focused?.hidden)
    (session ? byId('text') : forms.firstField()).focus({ preventScroll: !focus });
  if (focus && !session) byId('sign-in').scrollIntoView({ block: 'center' });
  if (before && !session) announce('You are signed out.');
  if (session && !before) announce(`You are signed in as ${session.user.name}.`);
}

/** Asks the relay for the session, and shows it. */
async function askForSession(client, shown, forms) {
  const before = shown.changes();
  try {
    const found = await client.session();
    if (before === shown.changes()) shown.show(found);
  } catch (error) {
    if (before !== shown.changes()) return;
    // The state is unknown, so the page keeps what it shows.
    if (shown.isSignedIn()) return shown.checkIn(SHORTEST_CHECK_MS);
    shown.show(undefined);
    // There may be a session, so the next visit asks again.
    localStorage.setItem(HINT, 'yes');
    forms.showError(error);
  }
}
