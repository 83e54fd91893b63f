import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage, FilePart } from '../channel/channel-types.ts';
import { answerActions } from './answer-actions.ts';
import { answerTrouble } from './answer-trouble.ts';
import type { ChatTools, RowDependencies } from './chat-tools.ts';
import { newElement, setAttribute, setText } from './dom.ts';
import { markdownView } from './markdown/markdown-view.ts';
import { timeText } from './time-text.ts';
import { toolList } from './tool-list.ts';
import { fill } from './words/words.ts';

/** One message of the conversation, as the page shows it. */
export interface Row {
  readonly element: HTMLElement;
  /** Shows the message in its new state. */
  update(message: ChannelMessage): void;
}

const GROWING: readonly ChannelMessage['state'][] = ['submitted', 'streaming', 'reconnecting'];

/** Whether more of the answer may come. */
export const isGrowing = ({ state }: ChannelMessage): boolean => GROWING.includes(state);

/** Makes the row of a message. */
export function messageRow(message: ChannelMessage, dependencies: RowDependencies): Row {
  return message.role === 'user'
    ? questionRow(message, dependencies.tools)
    : answerRow(message, dependencies);
}

function head(name: string, { metadata }: ChannelMessage, { lang }: ChatTools): HTMLElement {
  const element = newElement('p', { class: 'head', part: 'message-head' }, newElement('b', {}, name));
  const { createdAt } = metadata;
  if (createdAt === undefined) return element;
  const date = new Date(createdAt);
  element.append(' ', newElement('time', { datetime: date.toISOString() }, timeText(date, lang)));
  return element;
}

function questionRow(message: ChannelMessage, tools: ChatTools): Row {
  const { words } = tools;
  const text = newElement('p', { class: 'text', dir: 'auto' }, textOf(message));
  const files = message.parts.filter((part) => part.type === 'file');
  const list = newElement('ul', { class: 'sent-files' }, ...files.map((file) => fileItem(file, words.file)));
  const note = newElement('p', { class: 'note' });
  const element = newElement(
    'li',
    { part: 'message question', class: 'question' },
    head(words.saidYou, message, tools),
  );
  if (text.textContent) element.append(text);
  if (files.length > 0) element.append(list);
  element.append(note);
  const update = ({ state }: ChannelMessage) => {
    element.dataset.state = state;
    setText(note, state === 'queued' ? words.queued : '');
  };
  update(message);
  return { element, update };
}

/** A file of a message. Its address is at the relay, and the browser downloads it. */
function fileItem({ filename, url }: FilePart, unnamed: string): HTMLElement {
  const name = filename ?? unnamed;
  if (!url) return newElement('li', { dir: 'auto' }, name);
  const link = { part: 'link', href: url, target: '_blank', rel: 'noopener noreferrer' };
  return newElement('li', { dir: 'auto' }, newElement('a', link, name));
}

function answerRow(first: ChannelMessage, dependencies: RowDependencies): Row {
  const { tools, botName } = dependencies;
  const { words } = tools;
  const text = newElement('div', { class: 'text answer-text', part: 'answer' });
  const note = newElement('p', { class: 'note', part: 'note' });
  const called = toolList(dependencies);
  const trouble = answerTrouble(dependencies);
  const actions = answerActions(dependencies);
  const element = newElement(
    'li',
    { part: 'message answer', class: 'answer' },
    head(fill(words.saidBot, { bot: botName }), first, tools),
    ...[text, called.element, note, trouble.element, actions.element],
  );
  const show = markdownView(text, words);
  let shown = '';
  let wasGrowing = true;
  const waiting = counter(note, (seconds) => fill(words.waiting, { seconds }));
  function update(message: ChannelMessage): void {
    const { state } = message;
    const grows = isGrowing(message);
    const whole = textOf(message);
    if (whole !== shown || wasGrowing !== grows) show(whole, !grows);
    shown = whole;
    wasGrowing = grows;
    element.dataset.state = state;
    setAttribute(element, 'aria-busy', grows ? 'true' : undefined);
    waiting(state === 'submitted');
    if (state !== 'submitted') setText(note, noteOf(message, tools));
    called.update(message);
    trouble.update(message);
    actions.update(message);
  }
  update(first);
  return { element, update };
}

function noteOf(message: ChannelMessage, { words }: ChatTools): string {
  const { state, parts } = message;
  if (state === 'streaming') return words.answering;
  if (state === 'reconnecting') return words.connectionLost;
  if (state === 'stopped') return words.stopped;
  const isEmpty = parts.every((part) => part.type === 'text' && part.text === '');
  return state === 'done' && isEmpty ? words.nothing : '';
}

/**
 * Makes a function that starts and stops a count of seconds in `element`. `sentence` makes its text. The count ends when the
 * element is no longer in the page.
 */
function counter(element: Element, sentence: (seconds: number) => string): (isOn: boolean) => void {
  let timer: ReturnType<typeof setInterval> | undefined;
  return (isOn) => {
    if (isOn === (timer !== undefined)) return;
    clearInterval(timer);
    timer = undefined;
    if (!isOn) return;
    const since = performance.now();
    setText(element, sentence(0));
    timer = setInterval(() => {
      if (element.isConnected) setText(element, sentence(Math.floor((performance.now() - since) / 1000)));
      else clearInterval(timer);
    }, 1_000);
  };
}
