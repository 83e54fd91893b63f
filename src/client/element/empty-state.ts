import type { Looks } from './avatar.ts';
import type { ChatTools } from './chat-tools.ts';
import { button, newElement } from './dom.ts';

/** What is shown before anything was said. `send` sends a suggestion. */
export function emptyState(tools: ChatTools, send: (text: string) => void) {
  const { words } = tools;
  const list = newElement('ul', { 'aria-label': words.suggestions });
  const greeting = newElement(
    'div',
    { class: 'greeting' },
    tools.avatar(),
    newElement('h3', {}, words.empty),
  );
  const card = (text: string) => {
    const element = button(text, 'suggestion', () => send(text));
    element.dir = 'auto';
    return newElement('li', {}, element);
  };
  return {
    element: newElement('div', { class: 'empty', part: 'empty' }, greeting, list),
    /** Shows the suggestions. */
    look({ suggestions }: Looks): void {
      list.hidden = suggestions.length === 0;
      list.replaceChildren(...suggestions.map(card));
    },
  };
}
