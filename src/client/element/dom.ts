import { type IconName, icon } from './icons.ts';

type Child = Node | string;

/**
 * A new element with these attributes and children. Pass many children as one list: a call has a limit of arguments. A
 * text is never read as HTML.
 */
export function newElement<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly (Child | readonly Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const child of children.flat()) element.append(child);
  // After the children: with `dir="auto"`, Chromium reads all of them again at each new one.
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

const DISABLED = 'aria-disabled';

/** Sets a text only if it differs, so that the browser does not draw it, or read it out, again. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or removes an attribute only if it differs. */
export function setAttribute(element: Element, name: string, value: string | undefined): void {
  if (value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Whether a button does nothing when it is pressed. */
export const isDisabled = (button: Element): boolean => button.hasAttribute(DISABLED);

/** Sets whether a button does nothing. With `disabled` it would lose the focus, and screen readers could not read it. */
export function setDisabled(button: Element, isOn: boolean): void {
  setAttribute(button, DISABLED, isOn ? 'true' : undefined);
}

/** Puts these elements into `list`, in their order. One that is in its place stays: it may have the focus. */
export function placeIn(list: Element, elements: readonly Element[]): void {
  let at = list.firstElementChild;
  for (const element of elements) {
    if (element === at) at = at.nextElementSibling;
    else list.insertBefore(element, at);
  }
}

/** A button that does one thing. `part` is its name for style sheets of the page. */
export function button(text: string, part: string, onClick: () => void): HTMLButtonElement {
  const element = newElement('button', { type: 'button', part: `button ${part}` }, text);
  element.addEventListener('click', onClick);
  return element;
}

/** A round button with an icon. `label` is its name for screen readers, and its tooltip. */
export function iconButton(
  name: IconName,
  label: string,
  { part, onClick }: { readonly part: string; readonly onClick: () => void },
): HTMLButtonElement {
  const element = button('', part, onClick);
  element.classList.add('icon');
  setLabel(element, label);
  element.append(icon(name));
  return element;
}

/** Sets the name of a button that has only an icon, and its tooltip. */
export function setLabel(element: Element, label: string): void {
  setAttribute(element, 'aria-label', label);
  setAttribute(element, 'title', label);
}
