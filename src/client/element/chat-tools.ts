import type { Channel } from '../channel/channel-types.ts';
import { newElement, setText } from './dom.ts';
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

/** What a row of the conversation needs. */
export interface RowDependencies {
  readonly tools: ChatTools;
  readonly channel: Channel;
  /** The name of the bot, as it is shown. */
  readonly botName: string;
  /** A message was sent again, or a consent given: its button is gone, so the focus needs another place. */
  readonly onSent: () => void;
}
