import type { ChannelSnapshot } from '../channel/channel-types.ts';
import type { RelayError } from '../transport/relay-error.ts';
import { firstLetter } from './avatar.ts';
import type { ChatDependencies } from './chat-dependencies.ts';
import type { ChatTools } from './chat-tools.ts';
import { button, newElement, setLabel, setText } from './dom.ts';
import { showError } from './error-text.ts';
import { fill } from './words/words.ts';

interface MenuDependencies extends Pick<ChatDependencies, 'client'> {
  readonly tools: ChatTools;
  /** Where it says why a sign-out has failed. */
  readonly why: HTMLElement;
}

/** The button that shows who is signed in, and signs out. */
export function accountMenu({ client, tools, why }: MenuDependencies) {
  const { words } = tools;
  const letter = newElement('summary', { class: 'account', part: 'button account' });
  const who = newElement('p', { class: 'note', dir: 'auto' });
  const signOut = button(words.signOut, 'sign-out', async () => {
    close();
    setText(why, '');
    try {
      const { logoutUrl } = await client.signOut();
      if (logoutUrl) location.assign(logoutUrl);
    } catch (error) {
      showError(why, tools, error as RelayError);
    }
  });
  // A press on its text must not take the focus out of it.
  const menu = newElement('div', { class: 'menu', part: 'menu', tabindex: '-1' }, who, signOut);
  const element = newElement('details', {}, letter, menu);
  function close(): void {
    element.open = false;
    letter.focus();
  }
  closeOnLeaving(element, close);
  return {
    element,
    /** Shows who is signed in. */
    update({ session }: Pick<ChannelSnapshot, 'session'>): void {
      element.hidden = !session;
      element.open &&= !element.hidden;
      const user = session?.user.name ?? '';
      setText(letter, firstLetter(user));
      setLabel(letter, fill(words.account, { user }));
      setText(who, fill(words.signedInAs, { user }));
    },
  };
}

/** Closes a menu with the Escape key, when the focus leaves it, and when something else is pressed. */
function closeOnLeaving(element: HTMLDetailsElement, close: () => void): void {
  element.addEventListener('keydown', ({ key }) => {
    if (key === 'Escape') close();
  });
  element.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) element.open = false;
  });
  const onPress = (event: Event) => {
    if (!event.composedPath().includes(element)) element.open = false;
  };
  element.addEventListener('toggle', () => {
    if (element.open) document.addEventListener('pointerdown', onPress);
    else document.removeEventListener('pointerdown', onPress);
  });
}
