import type { ChatTools } from './chat-tools.ts';
import { newElement } from './dom.ts';

/** What the keys do where the user writes. */
export interface TextKeys {
  /** The Escape key. */
  readonly onStop: () => void;
  /** The arrow up, while nothing is written. */
  readonly onEditLast: () => void;
}

/** Where the user writes. Enter sends. */
export function textField({ words }: ChatTools, { onStop, onEditLast }: TextKeys): HTMLTextAreaElement {
  const text = newElement('textarea', {
    ...{ rows: '1', part: 'input', dir: 'auto', enterkeyhint: 'send' },
    ...{ 'aria-label': words.message, placeholder: words.message, 'aria-describedby': 'keys' },
  });
  text.addEventListener('keydown', (event) => {
    // A key that ends the composition of a character (IME) does nothing else.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === 'Escape') return onStop();
    const isSend = event.key === 'Enter' && !event.shiftKey;
    const isEdit = event.key === 'ArrowUp' && text.value === '';
    if (!isSend && !isEdit) return;
    event.preventDefault();
    if (isSend) text.form?.requestSubmit();
    else onEditLast();
  });
  return text;
}
