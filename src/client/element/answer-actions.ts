import { textOf } from '../channel/channel-state.ts';
import type { ChannelMessage, Verdict } from '../channel/channel-types.ts';
import { copyFrom, type RowDependencies } from './chat-tools.ts';
import { button, newElement, setAttribute } from './dom.ts';
import { icon } from './icons.ts';

/** What a user can do with an answer that has ended: copy it, ask again, and say what they think of it. */
export function answerActions({ tools, channel, onSent }: RowDependencies) {
  const { words } = tools;
  let message: ChannelMessage | undefined;
  const copy = button(words.copyAnswer, 'copy', () => {
    if (message) void copyFrom(copy, textOf(message), tools);
  });
  const again = button(words.askAgain, 'ask-again', () => {
    if (!tools.isFirstPress()) return;
    void channel.regenerate(message?.id);
    onSent();
  });
  again.title = words.askAgainHint;
  const thumb = (verdict: Verdict, label: string) => {
    const element = button('', 'thumb', () => {
      if (message) void channel.feedback(message.id, verdict);
    });
    element.setAttribute('aria-label', label);
    element.title = label;
    element.append(icon('thumb'));
    element.classList.toggle('down', verdict === 'BAD');
    return element;
  };
  const thumbs = { GOOD: thumb('GOOD', words.good), BAD: thumb('BAD', words.bad) };
  const element = newElement(
    'div',
    { class: 'actions', part: 'actions' },
    copy,
    again,
    thumbs.GOOD,
    thumbs.BAD,
  );
  return {
    element,
    /** Shows what can be done with the answer in its new state. */
    update(next: ChannelMessage): void {
      message = next;
      const { state, metadata, parts } = next;
      // The bot asks for a consent: its answer comes after that.
      const isAsking = parts.some((part) => 'state' in part && part.state === 'approval-requested');
      const hasText = textOf(next) !== '';
      element.hidden = isAsking || !(state === 'done' || state === 'stopped');
      copy.hidden = !hasText;
      for (const verdict of ['GOOD', 'BAD'] as const) {
        thumbs[verdict].hidden = metadata.messageId === undefined;
        setAttribute(thumbs[verdict], 'aria-pressed', String(metadata.verdict === verdict));
      }
    },
  };
}
