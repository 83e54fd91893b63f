import type { BotClient, RelayError } from '../bot-client.ts';
import { type ChatTools, setText } from './chat-tools.ts';
import { newElement } from './new-element.ts';

/** How users sign in at the relay. */
export type SignInMode = 'password' | 'guest' | 'oidc';

/** What the forms for signing in need. */
export interface SignInParts {
  readonly tools: ChatTools;
  readonly client: Pick<BotClient, 'session' | 'signIn' | 'signInAsGuest' | 'signInUrl'>;
  readonly mode: SignInMode;
  readonly isOtherOrigin: boolean;
}

/** What a user fills in to sign in. */
export function signInForm({ tools, client, mode, isOtherOrigin }: SignInParts) {
  const { words } = tools;
  const title = newElement('h3', {}, words.signInAsk);
  const why = newElement('p', { class: 'why', role: 'alert' });
  const name = field('text', 'username', words.user);
  const password = field('password', 'current-password', words.password);
  const submit = newElement('button', { type: 'submit', part: 'button sign-in' });
  setText(submit, mode === 'guest' ? words.guest : words.signIn);
  const link = newElement('a', { part: 'button sign-in', class: 'button' }, words.provider);
  if (mode === 'oidc') link.href = client.signInUrl(location.pathname + location.search);
  const fields = { password: [name.row, password.row, submit], guest: [submit], oidc: [link] }[mode];
  const element = newElement('form', { class: 'sign-in', part: 'sign-in' }, title, ...fields, why);
  element.hidden = true;

  element.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (submit.ariaDisabled === 'true') return;
    submit.ariaDisabled = 'true';
    // Emptied first, so that the same error is read out a second time.
    setText(why, '');
    try {
      if (mode === 'guest') await client.signInAsGuest();
      else await client.signIn(name.input.value, password.input.value);
      password.input.value = '';
      // Between sites, browsers drop the cookie without a word.
      if (isOtherOrigin && !(await client.session())) setText(why, words.crossSite);
    } catch (error) {
      setText(why, (error as RelayError).message);
    } finally {
      submit.ariaDisabled = null;
    }
  });
  return {
    element,
    clear: () => element.reset(),
    focus: () => element.querySelector<HTMLElement>('input, button, a')?.focus(),
    /** Shows the form, or hides it. `wasSignedIn` if somebody has been signed in here. */
    show(isShown: boolean, wasSignedIn: boolean): void {
      element.hidden = !isShown;
      setText(title, wasSignedIn ? words.signedOut : words.signInAsk);
      if (!isShown) setText(why, '');
    },
  };
}

function field(type: string, autocomplete: string, label: string) {
  const attributes = { type, autocomplete, autocapitalize: 'none', spellcheck: 'false', required: '' };
  const input = newElement('input', { ...attributes, part: 'input' });
  return { input, row: newElement('label', {}, newElement('span', {}, label), input) };
}
