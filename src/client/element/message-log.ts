import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage } from '../channel/channel-types.ts';
import { type ChatTools, copyFrom, type RowDependencies } from './chat-tools.ts';
import { iconButton, newElement, placeIn, setAttribute } from './dom.ts';
import { aroundError, errorPieces } from './error-text.ts';
import { isGrowing, messageRow, type Row } from './message-row.ts';
import { dayText } from './time-text.ts';
import { fill } from './words/words.ts';

/** The messages of a conversation. A reader at the end stays there while it grows. */
export function messageLog(dependencies: RowDependencies) {
  const { tools } = dependencies;
  const { element, list, scrollToEnd } = logElements(tools);
  const rows = new Map<string, { readonly row: Row; message: ChannelMessage }>();
  function rowOf(message: ChannelMessage): HTMLElement {
    const known = rows.get(message.id);
    if (!known) {
      const row = messageRow(message, dependencies);
      rows.set(message.id, { row, message });
      return row.element;
    }
    if (known.message !== message) {
      const before = known.message;
      known.message = message;
      known.row.update(message);
      if (isGrowing(before) && !isGrowing(message)) announceEnd(message, dependencies);
    }
    return known.row.element;
  }
  return {
    element,
    scrollToEnd,
    /** Shows these messages. A message that is the same object as before is not touched. */
    update(messages: readonly ChannelMessage[]): void {
      const wanted = new Set(messages.map(({ id }) => id));
      for (const [id, { row }] of rows) {
        if (wanted.has(id)) continue;
        row.element.remove();
        rows.delete(id);
      }
      const shown = messages.map((message) => ({ message, row: rowOf(message) }));
      placeIn(
        list,
        shown.map(({ row }) => row),
      );
      let day = '';
      for (const { message, row } of shown) day = showDay(row, message, { before: day, lang: tools.lang });
      setAttribute(element, 'aria-busy', String(messages.some(isGrowing)));
    },
  };
}

/** The box that is scrolled, and in it the list and a button that scrolls to its end. */
function logElements(tools: ChatTools) {
  const { words } = tools;
  const list = newElement('ol', { class: 'messages' });
  const attributes = { class: 'log', part: 'log', role: 'log', 'aria-live': 'off', tabindex: '0' };
  const element = newElement('div', { ...attributes, 'aria-label': words.conversation }, list);
  const toEnd = iconButton('down', words.toEnd, {
    part: 'to-end',
    onClick() {
      // A button that is hidden loses the focus.
      element.focus({ preventScroll: true });
      scrollToEnd();
    },
  });
  toEnd.hidden = true;
  element.append(newElement('div', { class: 'to-end' }, toEnd));
  const scrollToEnd = keepAtEnd(element, list, (isAtEnd) => {
    toEnd.hidden = isAtEnd;
  });
  list.addEventListener('click', ({ target }) => {
    const button = target instanceof Element ? target.closest<HTMLElement>('[data-copy-code]') : null;
    const code = button?.closest('.code')?.querySelector('pre')?.textContent;
    if (button && code) void copyFrom(button, code, tools);
  });
  return { element, list, scrollToEnd };
}

/** Shows the day of a message if it is another one than `before`. Returns the day of the messages up to this one. */
function showDay(
  row: HTMLElement,
  { metadata }: ChannelMessage,
  { before, lang }: { readonly before: string; readonly lang: string },
): string {
  const { createdAt } = metadata;
  const day = createdAt === undefined ? before : new Date(createdAt).toDateString();
  const shown = row.querySelector(':scope > .day');
  if (createdAt === undefined || day === before) shown?.remove();
  else if (!shown) row.prepend(newElement('h3', { class: 'day', part: 'day' }, dayText(createdAt, lang)));
  return day;
}

/** An answer is read out once, when it has ended. */
function announceEnd(message: ChannelMessage, { tools, botName }: RowDependencies): void {
  const { words, announce } = tools;
  const text = textOf(message);
  const { state, error } = message;
  if (state === 'stopped') announce(words.stopped);
  else if (error)
    announce(errorPieces(tools, error, aroundError(text ? words.incomplete : words.failedAnswer)));
  else announce(text ? `${fill(words.saidBot, { bot: botName })}: ${text}` : words.nothing);
}

/** A box counts as scrolled to the end if it is as near to it, in px. */
const NEAR_END = 60;

/**
 * Keeps a reader at the end of `box` there while its content grows, and tells `onChange` whether the reader is there.
 * Returns the function that scrolls to the end.
 */
export function keepAtEnd(
  box: HTMLElement,
  content: HTMLElement,
  onChange: (isAtEnd: boolean) => void = () => {},
): () => void {
  let isAtEnd = true;
  let before = 0;
  const scrollToEnd = () => {
    isAtEnd = true;
    box.scrollTop = box.scrollHeight;
    onChange(true);
  };
  box.addEventListener('scroll', () => {
    const { scrollTop } = box;
    const isNear = box.scrollHeight - scrollTop - box.clientHeight < NEAR_END;
    // New content moves the end away. Only a reader scrolls back.
    if (isNear || scrollTop < before) isAtEnd = isNear;
    before = scrollTop;
    onChange(isAtEnd);
  });
  const resizes = new ResizeObserver(() => isAtEnd && scrollToEnd());
  for (const one of [box, content]) resizes.observe(one);
  return scrollToEnd;
}
