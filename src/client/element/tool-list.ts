import type { ChannelMessage, ToolPart } from '../channel/channel-types.ts';
import type { RowDependencies } from './chat-tools.ts';
import { button, newElement, setText } from './dom.ts';
import { fill } from './words/words.ts';

/** The tools that an answer uses, and those for which it asks a consent. */
export function toolList({ tools, channel, onSent }: RowDependencies) {
  const { words, announce } = tools;
  const element = newElement('ul', { class: 'tools', part: 'tools' });
  const rows = new Map<string, { readonly item: HTMLElement; state: ToolPart['state'] }>();

  function consentItem({ toolName, toolCallId }: ToolPart): HTMLElement {
    const ask = fill(words.toolWants, { tool: toolName });
    announce(ask);
    const answer = (allow: boolean | 'always') => () => {
      if (!tools.isFirstPress()) return;
      void channel.consent(toolCallId, allow);
      onSent();
    };
    return newElement(
      'li',
      { class: 'consent', part: 'consent' },
      newElement('p', { dir: 'auto' }, ask),
      button(words.allowOnce, 'allow', answer(true)),
      button(words.allowAlways, 'allow-always', answer('always')),
      button(words.deny, 'deny', answer(false)),
    );
  }
  function itemOf(part: ToolPart): HTMLElement {
    if (part.state === 'approval-requested') return consentItem(part);
    const isDenied = part.state === 'approval-responded' && !part.approval.approved;
    const isDone = part.state === 'output-available';
    const text = fill(isDone ? words.toolDone : words.tool, { tool: part.toolName });
    const item = newElement('li', { class: 'tool', dir: 'auto' });
    setText(item, isDenied ? `${part.toolName}: ${words.denied}` : text);
    return item;
  }
  return {
    element,
    /** Shows the tools of the answer in its new state. */
    update({ parts }: ChannelMessage): void {
      for (const part of parts) {
        if (part.type !== 'dynamic-tool') continue;
        const row = rows.get(part.toolCallId);
        if (row?.state === part.state) continue;
        const item = itemOf(part);
        if (row) row.item.replaceWith(item);
        else element.append(item);
        rows.set(part.toolCallId, { item, state: part.state });
      }
    },
  };
}
