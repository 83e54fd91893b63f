import { isOver } from '../channel/channel-state.ts';
import type { ChannelMessage, ToolPart } from '../channel/channel-types.ts';
import type { RowDependencies } from './chat-tools.ts';
import { button, newElement } from './dom.ts';
import { icon } from './icons.ts';
import { isBlank, jsonBox, readable } from './json-box.ts';
import { fill } from './words/words.ts';

/** A longer input is folded in a question for a consent. */
const SHORT_INPUT = 400;

interface Shown {
  readonly item: HTMLElement;
  /** What is shown of the call. */
  readonly key: string;
}

/** The tools that an answer uses (`element`), and those for which it asks a consent (`asks`). */
export function toolList(dependencies: RowDependencies) {
  const element = newElement('ul', { class: 'tools', part: 'tools' });
  const asks = newElement('ul', { class: 'tools' });
  const rows = new Map<string, Shown>();
  return {
    element,
    asks,
    /** Shows the tools of the answer in its new state. */
    update({ parts, state }: ChannelMessage): void {
      for (const part of parts) {
        if (part.type !== 'dynamic-tool') continue;
        const isAsking = part.state === 'approval-requested';
        const isDone = part.state === 'output-available' || isOver(state);
        const key = `${part.state} ${isDone}`;
        const before = rows.get(part.toolCallId);
        if (before?.key === key) continue;
        const item = isAsking ? consentItem(part, dependencies) : toolItem(part, isDone, dependencies);
        const wasOpen = before?.item.querySelector('details')?.open;
        const hadFocus = before?.item.matches(':focus-within');
        const details = item.querySelector('details');
        if (details && wasOpen && !isAsking) details.open = true;
        const list = isAsking ? asks : element;
        if (before?.item.parentElement === list) before.item.replaceWith(item);
        else {
          before?.item.remove();
          list.append(item);
        }
        if (hadFocus && !isAsking) item.querySelector('summary')?.focus();
        rows.set(part.toolCallId, { item, key });
      }
    },
  };
}

/** The name of a tool in words. */
const wordsOf = (name: string) =>
  name
    .replace(/([a-z\d])([A-Z])(?![A-Z])/g, (_, end: string, start: string) => `${end} ${start.toLowerCase()}`)
    .replace(/[_.-]+/g, ' ')
    .trim();

/** Asks whether the bot may use a tool, and says with what. */
function consentItem(
  { toolName, toolCallId, input }: ToolPart,
  { tools, channel, onSent }: RowDependencies,
): HTMLElement {
  const { words } = tools;
  const ask = fill(words.toolWants, { tool: wordsOf(toolName) });
  tools.announce(ask);
  const answer = (allow: boolean | 'always') => () => {
    if (!tools.isFirstPress()) return;
    void channel.consent(toolCallId, allow);
    onSent();
  };
  const allow = button(words.allowOnce, 'allow', answer(true));
  allow.classList.add('primary');
  const title = newElement('p', { class: 'ask', dir: 'auto' }, icon('tool'), newElement('span', {}, ask));
  const always = button(words.allowAlways, 'allow-always', answer('always'));
  const choice = [allow, always, button(words.deny, 'deny', answer(false))];
  return newElement('li', { class: 'consent', part: 'consent' }, title, inputPieces(input, words), choice);
}

/** What a tool is to be called with. A long one is folded. */
function inputPieces(input: unknown, { toolInput }: RowDependencies['tools']['words']): HTMLElement[] {
  if (isBlank(input)) return [];
  const box = jsonBox(input, toolInput);
  if (readable(input).length <= SHORT_INPUT) return [box];
  return [newElement('details', {}, newElement('summary', { class: 'more' }, toolInput), box)];
}

/** A tool that the bot uses or has used. It opens to what it was called with, and to what it has said. */
function toolItem(part: ToolPart, isDone: boolean, { tools }: RowDependencies): HTMLElement {
  const { words } = tools;
  const name = wordsOf(part.toolName);
  const isDenied = part.state === 'approval-responded' && !part.approval.approved;
  const text = isDenied
    ? `${name}: ${words.denied}`
    : fill(isDone ? words.toolDone : words.tool, { tool: name });
  const output = part.state === 'output-available' ? part.output : undefined;
  const values = [
    [words.toolInput, part.input],
    [words.toolOutput, output],
  ] as const;
  const boxes = values.flatMap(([label, value]) =>
    isBlank(value) ? [] : [newElement('p', { class: 'note' }, label), jsonBox(value, label)],
  );
  const line = [icon('tool'), newElement('span', { dir: 'auto' }, text)];
  const item = newElement('li', { class: 'tool' });
  item.classList.toggle('working', !isDone && !isDenied);
  if (boxes.length === 0) item.append(newElement('p', { class: 'line' }, line));
  else item.append(newElement('details', {}, newElement('summary', { class: 'line more' }, line), boxes));
  return item;
}
