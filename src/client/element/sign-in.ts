import type { BotClient, RelayError } from '../session/bot-client.ts';
import type { ChatTools } from './chat-tools.ts';
import { isDisabled, newElement, setDisabled, setText } from './dom.ts';
import { showError } from './error-text.ts';
import { countdown, timeLeft } from './time-text.ts';
import { fill } from './words/words.ts';

/** The user of the demo. */
export interface DemoUser {
  readonly name: string;
  readonly password: string;
}

/** How users sign in at the relay. */
export type SignInMode = 'password' | 'guest' | 'oidc';

/** What the forms for signing in need. */
export interface SignInDependencies {
  readonly tools: ChatTools;
  readonly client: Pick<BotClient, 'signIn' | 'signInAsGuest' | 'signInUrl'>;
  readonly mode: SignInMode;
  /** The user whose name and password are filled in. */
  readonly user?: DemoUser | undefined;
}

/** The form for signing in. */
export function signInForm({ tools, client, mode, user }: SignInDependencies) {
  const { words } = tools;
  const title = newElement('h3', {}, words.signInAsk);
  const why = newElement('p', { class: 'why' });
  const name = field({ type: 'text', autocomplete: 'username' }, words.user, user?.name);
  const password = field(
    { type: 'password', autocomplete: 'current-password' },
    words.password,
    user?.password,
  );
  const hint = newElement('p', { class: 'note' }, user ? fill(words.demoUser, { ...user }) : '');
  const label = mode === 'guest' ? words.guest : words.signIn;
  const { submit, take, release } = submitButton(tools, label, name.input);
  const link = newElement('a', { part: 'button sign-in', class: 'button' }, words.provider);
  if (mode === 'oidc') link.href = client.signInUrl(location.pathname + location.search);
  const fields = { password: [name.row, password.row, submit, hint], guest: [submit], oidc: [link] }[mode];
  const element = newElement(
    'form',
    { class: 'sign-in', part: 'sign-in' },
    tools.avatar(),
    title,
    ...fields,
    why,
  );
  element.hidden = true;

  element.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (!take()) return;
    // Emptied first, so that the same error is read out a second time.
    setText(why, '');
    let waitSeconds: number | undefined;
    try {
      if (mode === 'guest') await client.signInAsGuest();
      else await client.signIn(name.input.value, password.input.value);
      password.input.value = password.input.defaultValue;
    } catch (error) {
      showError(why, tools, error as RelayError);
      waitSeconds = (error as RelayError).retryAfter;
    }
    release(waitSeconds);
  });
  return {
    element,
    clear: () => element.reset(),
    focus: () => element.querySelector<HTMLElement>('input, button, a')?.focus(),
    /** Shows or hides the form. `wasSignedIn` says whether somebody was signed in here before. */
    show(isShown: boolean, wasSignedIn: boolean): void {
      element.hidden = !isShown;
      setText(title, wasSignedIn ? words.signedOut : words.signInAsk);
      if (!isShown) setText(why, '');
    },
  };
}

/** The button that signs in. It does nothing while a sign-in is under way, or the relay has asked to wait. */
function submitButton(tools: ChatTools, label: string, name: HTMLElement) {
  const submit = newElement('button', { type: 'submit', part: 'button sign-in' }, label);
  const draw = countdown(submit, tools, { label, waiting: tools.words.tryAgainIn });
  let isTaken = false;
  function release(waitSeconds = 0): void {
    isTaken = false;
    draw(timeLeft(waitSeconds));
    if (waitSeconds > 0) tools.announce(submit.textContent ?? '');
  }
  // The relay counts failures by user, so another user need not wait. A sign-in that is under way goes on.
  name.addEventListener('input', () => isTaken || release());
  return {
    submit,
    take(): boolean {
      const isFree = !isDisabled(submit);
      isTaken ||= isFree;
      setDisabled(submit, true);
      return isFree;
    },
    release,
  };
}

/** An input that must be filled in, with its label and its first value. */
function field(kind: Readonly<Record<'type' | 'autocomplete', string>>, label: string, value = '') {
  const attributes = { ...kind, value, autocapitalize: 'none', spellcheck: 'false', required: '' };
  const input = newElement('input', { ...attributes, part: 'input' });
  return { input, row: newElement('label', {}, newElement('span', {}, label), input) };
}
