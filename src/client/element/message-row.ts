import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage } from '../channel/channel-types.ts';
import { answerActions } from './answer-actions.ts';
import { answerTrouble } from './answer-trouble.ts';
import type { ChatTools, RowDependencies } from './chat-tools.ts';
import { newElement, setAttribute, setText } from './dom.ts';
import { markdownView } from './markdown/markdown-view.ts';
import { questionRow } from './question-row.ts';
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
  return message.role === 'user' ? questionRow(message, dependencies) : answerRow(message, dependencies);
}

function answerRow(first: ChannelMessage, dependencies: RowDependencies): Row {
  const { tools, botName } = dependencies;
  const { words } = tools;
  const name = newElement('b', {}, fill(words.saidBot, { bot: botName }));
  const head = newElement('p', { class: 'head', part: 'message-head' }, tools.avatar(), name);
  const text = newElement('div', { class: 'text answer-text', part: 'answer' });
  const dots = newElement('p', { class: 'dots', 'aria-hidden': 'true' }, ...dotsOf(3));
  const note = newElement('p', { class: 'note', part: 'note' });
  const called = toolList(dependencies);
  const trouble = answerTrouble(dependencies);
  const actions = answerActions(dependencies, first);
  const parts = [head, called.element, text, called.asks, dots, note, trouble.element];
  const element = newElement('li', { part: 'message answer', class: 'answer' }, parts);
  element.append(actions.element, actions.comment);
  const show = markdownView(text, words);
  let shown = '';
  let wasGrowing = true;
  const waiting = counter(note, (seconds) =>
    seconds < QUIET_SECONDS ? '' : fill(words.waiting, { seconds }),
  );
  const silence = silenceOf(element);
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
    silence(grows);
    if (state !== 'submitted') setText(note, noteOf(message, tools));
    called.update(message);
    trouble.update(message);
    actions.update(message);
  }
  update(first);
  return { element, update };
}

const dotsOf = (count: number) => Array.from({ length: count }, () => newElement('i'));

function noteOf(message: ChannelMessage, { words }: ChatTools): string {
  const { state, parts } = message;
  if (state === 'reconnecting') return words.connectionLost;
  if (state === 'stopped') return words.stopped;
  const isEmpty = parts.every((part) => part.type === 'text' && part.text === '');
  return state === 'done' && isEmpty ? words.nothing : '';
}

/** For so long, the dots alone say that an answer is waited for. */
const QUIET_SECONDS = 3;

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

/** After this time without anything new, an answer shows again that it goes on, in ms. */
const SILENT_MS = 5_000;

/** Makes a function to be called at each change of an answer. It marks `element` when nothing has come for a while. */
function silenceOf(element: HTMLElement): (grows: boolean) => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return (grows) => {
    clearTimeout(timer);
    delete element.dataset.silent;
    if (!grows) return;
    timer = setTimeout(() => {
      element.dataset.silent = '';
    }, SILENT_MS);
  };
}
