import type { Channel } from '../channel/channel-types.ts';
import { newElement, setLabel, setText } from './dom.ts';
import { icon } from './icons.ts';
import type { Language } from './words/words.ts';

/** What all parts of the chat share. */
export interface ChatTools extends Language {
  /** Has screen readers read a text once, after what they are reading. */
  readonly announce: (text: string | readonly (Node | string)[]) => void;
  /** Whether a press is the first one: the second press of a double-click would be another paid run. */
  readonly isFirstPress: () => boolean;
  /** A new picture of the bot. */
  readonly avatar: () => HTMLElement;
}

/** Presses with less than this time between them, in ms, are one press. */
const DOUBLE_PRESS_MS = 300;

/** Makes a function that is called at each press, and tells whether that is the first one of a double-click. */
export function onlyFirst(): () => boolean {
  let last = -DOUBLE_PRESS_MS;
  return () => {
    const now = performance.now();
    const isFirst = now - last >= DOUBLE_PRESS_MS;
    last = now;
    return isFirst;
  };
}

/** How long an announcement stays in the page, in ms. After that, a screen reader does not find it any more. */
const ANNOUNCED_MS = 10_000;

/** A region for screen readers alone, and the function that has a text read out in it. */
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

/** How long a button says that it has copied, in ms. */
const COPIED_MS = 2_000;

/** What copying needs. Without `announce`, only the button says whether it worked. */
export type CopyTools = Pick<ChatTools, 'words'> & Partial<Pick<ChatTools, 'announce'>>;

/** Copies a text, and says on the button whether it worked: a page without TLS has no clipboard. */
export async function copyFrom(button: HTMLElement, text: string, { words, announce }: CopyTools) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    isCopied = false;
  }
  const said = isCopied ? words.copied : words.notCopied;
  announce?.(said);
  if (button.dataset.said !== undefined) return;
  button.dataset.said = '';
  const restore = button.querySelector('svg') ? sayOnIcon(button, said, isCopied) : sayOnText(button, said);
  setTimeout(() => {
    restore();
    delete button.dataset.said;
  }, COPIED_MS);
}

/** Changes the text of a button. The returned function changes it back. */
function sayOnText(button: HTMLElement, said: string): () => void {
  const before = button.textContent ?? '';
  setText(button, said);
  return () => setText(button, before);
}

/** Changes the icon of a button, and its name, so that no other button moves. The returned function changes them back. */
function sayOnIcon(button: HTMLElement, said: string, isCopied: boolean): () => void {
  const before = button.getAttribute('aria-label') ?? '';
  const icons = [...button.childNodes];
  setLabel(button, said);
  button.replaceChildren(icon(isCopied ? 'check' : 'close'));
  return () => {
    setLabel(button, before);
    button.replaceChildren(...icons);
  };
}

/** What a row of the conversation needs. */
export interface RowDependencies {
  readonly tools: ChatTools;
  readonly channel: Channel;
  /** The name of the bot, as it is shown. */
  readonly botName: string;
  /** Called when a message was sent again, or a consent given: its button is gone, so the focus needs another place. */
  readonly onSent: () => void;
  /** Puts a text where the user writes. */
  readonly onEdit: (text: string) => void;
}
