import { newElement } from './new-element.ts';
import type { Language } from './words.ts';

/** What all parts of the chat share. */
export interface ChatTools extends Language {
  /** Has screen readers read a text once, after what they are reading. */
  readonly announce: (text: string | readonly (Node | string)[]) => void;
  /** Asked at each press that runs the bot: false for the second one of a double-click, which would be another paid run. */
  readonly isFirstPress: () => boolean;
}

/** Presses with less than this time between them, in ms, are one press. */
const DOUBLE_PRESS_MS = 300;

/** Makes a function that tells whether a press is the first one of a double-click or a triple one. */
export function onlyFirst(): () => boolean {
  let last = -DOUBLE_PRESS_MS;
  return () => {
    const now = performance.now();
    const isFirst = now - last >= DOUBLE_PRESS_MS;
    last = now;
    return isFirst;
  };
}

/** How long an announcement stays, in ms: a user who reads the page should not find it again. */
const ANNOUNCED_MS = 10_000;

/** A region that is not seen, and the function that announces a text in it. */
export function announcer(): { readonly region: HTMLElement; readonly announce: ChatTools['announce'] } {
  const region = newElement('div', { class: 'unseen', 'aria-live': 'polite', 'aria-relevant': 'additions' });
  return {
    region,
    announce(text) {
      const line = newElement('p', {}, text);
      region.append(line);
      setTimeout(() => line.remove(), ANNOUNCED_MS);
    },
  };
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

/** Whether a button does nothing now. */
export const isDisabled = (button: Element): boolean => button.hasAttribute(DISABLED);

/** Not `disabled`: the button would lose the focus, and screen readers could not read the time that is left. */
export function setDisabled(button: Element, isOn: boolean): void {
  setAttribute(button, DISABLED, isOn ? 'true' : undefined);
}

/** A button that does one thing. `part` is its name for style sheets of the page. */
export function button(text: string, part: string, onClick: () => void): HTMLButtonElement {
  const element = newElement('button', { type: 'button', part: `button ${part}` }, text);
  element.addEventListener('click', onClick);
  return element;
}

/** How long a button says that it has copied, in ms. */
const COPIED_MS = 2_000;

/** Copies a text, and says on the button whether that has worked: pages without TLS have no clipboard. */
export async function copyFrom(button: HTMLElement, text: string, { words, announce }: ChatTools) {
  const before = button.textContent ?? '';
  const said = [words.copied, words.notCopied];
  let [now = ''] = said;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    now = words.notCopied;
  }
  announce(now);
  if (said.includes(before)) return;
  setText(button, now);
  setTimeout(() => setText(button, before), COPIED_MS);
}
