import { newElement } from './dom.ts';

/** How the page wants the chat to look. It can change while the chat is shown. */
export interface Looks {
  /** The name of the bot, as it is shown. */
  readonly title: string;
  /** The address of a picture of the bot. */
  readonly logo?: string | undefined;
  /** What stands in the empty text field. */
  readonly placeholder?: string | undefined;
  /** Messages that a user can send with one press, before anything was said. */
  readonly suggestions: readonly string[];
}

/** The picture of the bot: its logo or, without one, the first letter of its name. Screen readers do not read it. */
export function avatarOf(looks: Looks): HTMLElement {
  const element = newElement('span', { class: 'avatar', part: 'avatar', 'aria-hidden': 'true' });
  fillAvatar(element, looks);
  return element;
}

/** Shows the picture of the bot in an element that `avatarOf` has made. */
export function fillAvatar(element: Element, { title, logo }: Looks): void {
  const picture = logo && newElement('img', { src: logo, alt: '', part: 'logo' });
  element.replaceChildren(picture || firstLetter(title));
}

/** The first letter of a name; that of an emoji is the whole emoji. */
export function firstLetter(name: string): string {
  const { value } = new Intl.Segmenter().segment(name.trim())[Symbol.iterator]().next();
  return `${value?.segment ?? ''}`.toUpperCase();
}
