import { asDuration, byId, countSeconds, setText } from './chat-tools.js';

/**
 * The forms for signing in. `folder` is the page's path; `onSession` is called with the session that a form has begun,
 * `onLeave` before the page is left to sign in.
 */
export function signInForms({ client, folder, onSession, onLeave }) {
  const { mode } = document.body.dataset;
  let stopCounting = () => {};
  function clearError() {
    stopCounting();
    for (const id of ['sign-in-error', 'sign-in-wait']) setText(byId(id), '');
  }
  /** Shows why the sign-in failed, which screen readers read out, and when the user can try again. */
  function showError(error) {
    stopCounting();
    setText(byId('sign-in-error'), error.message);
    byId('sign-in-error').scrollIntoView({ block: 'nearest' });
    const wait = error.retryAfter ?? 0;
    stopCounting = countSeconds((seconds) => {
      setText(byId('sign-in-wait'), seconds < wait ? `Try again in ${asDuration(wait - seconds)}.` : '');
      return seconds >= wait;
    });
  }
  const password = () => client.signIn(byId('username').value, byId('password').value);
  const by = (signIn) => signInBy(signIn, { onSession, showError });
  byId('password-form').addEventListener('submit', by(password));
  byId('guest-form').addEventListener(
    'submit',
    by(() => client.signInAsGuest()),
  );
  byId('provider').href = client.signInUrl(`${folder}/`);
  byId('provider').addEventListener('click', onLeave);
  return {
    showError,
    clearError,
    firstField: () => byId('sign-in').querySelector(`[data-only='${mode}'] :is(input, button, a)`),
  };
}

/** Makes the handler of a form that signs in with `signIn`. One click makes one call. */
const signInBy =
  (signIn, { onSession, showError }) =>
  async (event) => {
    event.preventDefault();
    const button = event.target.querySelector('button');
    if (button.ariaDisabled === 'true') return;
    button.ariaDisabled = 'true';
    // Emptied first, so that the same error is read out a second time.
    setText(byId('sign-in-error'), '');
    try {
      onSession(await signIn());
    } catch (error) {
      showError(error);
    } finally {
      button.ariaDisabled = null;
    }
  };
