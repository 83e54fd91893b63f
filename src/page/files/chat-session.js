import { announce, byId, countSeconds, growing, inWords, setText } from './chat-tools.js';

/** Remembers that somebody has signed in here, so that a first visit does not ask the relay for nothing. */
const HINT = 'bot-relay-signed-in';
const SIGNED_OUT = 'You are signed out. What you write stays here until you have signed in.';
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const SHORTEST_CHECK_MS = 10_000;

/**
 * Who is signed in, here and in the other tabs of this browser. `client` is the relay's client, `folder` the page's
 * path, `onUser` is told of a user who is another one than before, and `onLeave` when the page is left to sign in.
 */
export function keepSession({ client, folder, onUser, onLeave }) {
  const { mode } = document.body.dataset;
  const firstField = () => byId('sign-in').querySelector(`[data-only='${mode}'] :is(input, button, a)`);
  const tabs = new BroadcastChannel(`bot-relay ${folder}`);
  let session;
  let lastUser;
  let nextCheck;
  let stopCounting = () => {};
  /** Counts what has been found out: what was asked before that is no news. */
  let news = 0;

  /** Shows it. `focus` says whether the user has done this just now, and goes on with the keyboard. */
  function show(next, { focus = false } = {}) {
    const before = session;
    session = next;
    news += 1;
    clearTimeout(nextCheck);
    document.body.dataset.session = next ? 'in' : 'out';
    if (next) {
      localStorage.setItem(HINT, 'yes');
      if (lastUser !== undefined && lastUser !== next.user.id && mode !== 'guest') onUser();
      lastUser = next.user.id;
      const ends = Math.min(Date.parse(next.idleExpiresAt), Date.parse(next.absoluteExpiresAt));
      const wait = Math.max(SHORTEST_CHECK_MS, ends - Date.now() + 1_000);
      nextCheck = setTimeout(refresh, Math.min(wait, LONGEST_TIMER_MS));
    } else localStorage.removeItem(HINT);
    draw(Boolean(before), focus);
    if (before && !next) announce('You are signed out.');
    if (next && !before) announce(`You are signed in as ${next.user.name}.`);
  }

  function draw(wasIn, focus) {
    const held = [byId('sign-in'), byId('sign-out')].find((one) => one.contains(document.activeElement));
    growing(() => {
      for (const id of ['who', 'sign-out']) byId(id).hidden = !session;
      byId('sign-in').hidden = Boolean(session);
      byId('composer').hidden = !session && lastUser === undefined;
      setText(byId('composer-note'), session || lastUser === undefined ? '' : SIGNED_OUT);
      if (session) setText(byId('user'), session.user.name);
      else if (wasIn) {
        setText(byId('sign-in-title'), 'You are signed out');
        setText(byId('sign-in-why'), 'Sign in to go on. The conversation stays here.');
      }
      stopCounting();
      for (const id of ['sign-in-error', 'sign-in-wait']) setText(byId(id), '');
    });
    // What had the focus is gone; but nobody is taken away from what they read by what happens elsewhere.
    if (focus || held?.hidden) (session ? byId('text') : firstField()).focus({ preventScroll: !focus });
    if (focus && !session) byId('sign-in').scrollIntoView({ block: 'center' });
  }

  async function refresh() {
    const asked = news;
    try {
      const found = await client.session();
      if (asked === news) show(found);
    } catch (error) {
      if (asked !== news) return;
      clearTimeout(nextCheck);
      // Not known: what was true a moment ago is the best guess.
      if (session) nextCheck = setTimeout(refresh, SHORTEST_CHECK_MS);
      else {
        show(undefined);
        // There may be one all the same.
        localStorage.setItem(HINT, 'yes');
        trouble(error);
      }
    }
  }

  /** Says why nobody could sign in, and when it is worth another try: the first is read out, the second only shown. */
  function trouble(error) {
    stopCounting();
    setText(byId('sign-in-error'), error.message);
    byId('sign-in-error').scrollIntoView({ block: 'nearest' });
    const wait = error.retryAfter ?? 0;
    stopCounting = countSeconds((seconds) => {
      setText(byId('sign-in-wait'), seconds < wait ? `Try again in ${inWords(wait - seconds)}.` : '');
      return seconds >= wait;
    });
  }

  /** Signs in by what the form asks for; one press, one try. */
  const signInBy = (way) => async (event) => {
    event.preventDefault();
    const button = event.target.querySelector('button');
    if (button.ariaDisabled === 'true') return;
    button.ariaDisabled = 'true';
    // The same words a second time are news as well.
    setText(byId('sign-in-error'), '');
    try {
      show(await way(), { focus: true });
      tabs.postMessage('in');
    } catch (error) {
      trouble(error);
    } finally {
      button.ariaDisabled = null;
    }
  };
  const password = () => client.signIn(byId('username').value, byId('password').value);
  byId('password-form').addEventListener('submit', signInBy(password));
  byId('guest-form').addEventListener(
    'submit',
    signInBy(() => client.signInAsGuest()),
  );
  byId('provider').href = client.signInUrl(`${folder}/`);
  byId('provider').addEventListener('click', () => {
    localStorage.setItem(HINT, 'yes');
    onLeave(lastUser);
  });

  byId('sign-out').addEventListener('click', async () => {
    try {
      const { logoutUrl } = await client.signOut();
      show(undefined, { focus: true });
      tabs.postMessage('out');
      if (logoutUrl) location.assign(logoutUrl);
    } catch (error) {
      setText(byId('composer-note'), `You are still signed in. ${error.message}`);
      announce(byId('composer-note').textContent);
    }
  });
  tabs.addEventListener('message', ({ data }) => (data === 'out' ? show(undefined) : refresh()));
  // A page that the browser has kept aside has heard nothing.
  addEventListener('pageshow', ({ persisted }) => persisted && refresh());

  return {
    isSignedIn: () => session !== undefined,
    /** The relay has said that a session is over; another one may have begun, in another tab. */
    ended: () => session && refresh(),
    askToSignIn: () => firstField().focus(),
    /** `user` is the id of the one whose conversation there is. */
    start(user) {
      lastUser = user;
      if (localStorage.getItem(HINT)) return refresh();
      show(undefined);
    },
  };
}
