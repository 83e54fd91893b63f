import type { Channel } from '../channel/channel-types.ts';
import { newElement, setText } from './dom.ts';
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

/** Copies a text, and says on the button whether it worked: a page without TLS has no clipboard. */
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

/** What a row of the conversation needs. */
export interface RowDependencies {
  readonly tools: ChatTools;
  readonly channel: Channel;
  /** The name of the bot, as it is shown. */
  readonly botName: string;
  /** Called when a message was sent again, or a consent given: its button is gone, so the focus needs another place. */
  readonly onSent: () => void;
}
